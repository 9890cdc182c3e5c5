"""Which networks does a job really need, and where does each sit in each phase?

The headcount is derived: a placement, a shared trunk or a function reward adds or removes a network here and nowhere
else.
"""

from __future__ import annotations

from headcount.estimate.parameters import adapter_parameters, parameters
from headcount.job.job import EnginePlacement, Job, Network, Placement, Tuning
from headcount.ledger.predicted import Resident
from headcount.vocabulary import TABLE, Phase, Role, State, Tier

__all__ = ["awake_groups", "on_device", "residents", "state_bytes", "states_in", "trained_parameters"]


def trained_parameters(network: Network) -> int:
    """Parameters with gradients and optimizer state."""
    if network.tuning is Tuning.FROZEN:
        return 0
    if network.adapter is None:
        return parameters(network.shape, scalar_head=network.scalar_head)
    adapter = network.adapter
    return adapter_parameters(network.shape, rank=adapter.rank, targets=adapter.targets) + (
        network.shape.hidden if network.scalar_head else 0
    )


def residents(job: Job) -> tuple[Resident, ...]:
    """The headcount by name: every network that holds weights, and the virtual ones that borrow them."""
    people = [_resident(network) for network in job.networks.values() if network.placement is not Placement.NONE]
    if job.engine is not None:
        policy = job.networks[Role.POLICY]
        shared = job.engine.placement is EnginePlacement.SHARED
        whose = "the policy itself" if shared else f"a second copy, {job.engine.placement}"
        people.append(
            Resident(
                role=Role.GENERATOR,
                tier=Tier.FROZEN,
                model=policy.shape.name,
                parameters=parameters(policy.shape),
                trained_parameters=0,
                state_bytes=0 if shared else round(parameters(policy.shape) * job.engine.weight_bytes),
                group=job.engine.group,
                weights_of=Role.POLICY if shared else None,
                note=f"{job.engine.name}: {whose}",
            )
        )
    return tuple(people)


def state_bytes(network: Network) -> int:
    """Weights, gradients and optimizer state of one whole network, before any division over GPUs."""
    if network.placement in (Placement.ADAPTER_OFF, Placement.CACHED, Placement.NONE):
        return 0
    whole = parameters(network.shape, scalar_head=network.scalar_head)
    policy, optimizer = network.precision, network.optimizer
    if network.tuning is Tuning.FULL:
        moment = policy.moment_bytes if optimizer.moment_bytes is None else optimizer.moment_bytes
        each = policy.weight_bytes + policy.gradient_bytes + policy.master_bytes + optimizer.moments * moment
        return round(whole * each)
    base = 0.0 if network.weights_of else whole * network.frozen.weight_bytes
    if network.adapter is None:
        return round(base)
    moment = network.adapter.weight_bytes if optimizer.moment_bytes is None else optimizer.moment_bytes
    each = 2 * network.adapter.weight_bytes + optimizer.moments * moment
    return round(base + trained_parameters(network) * each)


def _resident(network: Network) -> Resident:
    return Resident(
        role=network.role,
        tier=Tier.TRAINABLE if network.trainable else Tier.FROZEN,
        model=network.shape.name,
        parameters=parameters(network.shape, scalar_head=network.scalar_head),
        trained_parameters=trained_parameters(network),
        state_bytes=state_bytes(network),
        group=network.group,
        weights_of=network.weights_of,
        note=_placement_note(network),
    )


def _placement_note(network: Network) -> str:
    if network.placement is Placement.ADAPTER_OFF:
        return "the policy with its adapter off: no weights of its own"
    if network.placement is Placement.CACHED:
        return "log-probs read from disk after one pass: not resident"
    if network.placement is Placement.OFFLOAD:
        return "on the host outside its phase"
    if network.weights_of is not None:
        return f"shares the {network.weights_of}'s trunk"
    return ""


def states_in(job: Job, phase: Phase, role: Role) -> frozenset[State]:
    """What the table says of a role in a phase; empty when the job does not have the role."""
    if role is Role.GENERATOR:
        present = job.engine is not None
    else:
        present = role in job.networks and job.networks[role].placement is not Placement.NONE
    return TABLE[job.algorithm].get(phase, {}).get(role, frozenset()) if present else frozenset()


def on_device(job: Job, network: Network, phase: Phase) -> bool:
    """Are the network's own weights in GPU memory in this phase?"""
    states = states_in(job, phase, network.role)
    if State.WEIGHTS not in states or network.placement is Placement.ADAPTER_OFF:
        return False
    if network.placement is Placement.CACHED:
        return phase is Phase.CACHE
    works = bool(states & {State.FORWARD, State.BACKWARD}) or phase in (Phase.LOAD, Phase.SYNC, Phase.SAVE)
    if network.placement is Placement.OFFLOAD:
        return works and phase not in (Phase.SYNC, Phase.SAVE)
    if network.trainable and job.layouts[network.group].offload_between_phases:
        return works and (phase is not Phase.SYNC or network.role is Role.POLICY)
    return True


def awake_groups(job: Job) -> tuple[str, ...]:
    """Groups of GPUs in the order of the job."""
    return tuple(job.layouts)
