"""Which bytes does a network hold while it rests: weights and optimizer state, on the GPU and on the host?"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from headcount.estimate import model_state
from headcount.estimate.model_state import Held, held, held_adapters
from headcount.estimate.parameters import Kind
from headcount.facts.model_shape import ModelShape
from headcount.job.job import Adapter, Job, Network, Placement, Tuning
from headcount.job.layout import Layout, Shard
from headcount.ledger.derivation import Derived
from headcount.ledger.predicted import Row
from headcount.plan.residents import on_device, states_in
from headcount.vocabulary import Basis, Phase, State

__all__ = ["gradient_row", "offloaded", "resting_rows", "state_rows", "step_row", "trained"]

_SHARDED = ("shard", "tensor", "pipeline", "expert")
_WHOLE = ("tensor", "pipeline", "expert")


def _extra_trained(shape: ModelShape, layout: Layout, adapter: Adapter) -> Held:
    """Embedding or head trained whole beside the adapters (modules_to_save): copies of their own."""
    names = {"embed_tokens": Kind.EMBEDDING, "lm_head": Kind.HEAD}
    kinds = {names[name] for name in adapter.extra_trained if name in names}
    # A tied head has no tensor of its own, but modules_to_save copies it all the same.
    if shape.tied and Kind.HEAD in kinds:
        kinds.add(Kind.EMBEDDING)
    return held(shape, layout, select=lambda tensor: tensor.kind in kinds) if kinds else Held(0)


def trained(network: Network, layout: Layout) -> Held:
    """Numbers with gradients on one GPU, before sharding."""
    if network.adapter is None:
        return held(network.shape, layout, scalar_head=network.scalar_head)
    adapter = network.adapter
    numbers = held_adapters(network.shape, layout, rank=adapter.rank, targets=adapter.targets)
    head = Held(network.shape.hidden if network.scalar_head else 0)
    return numbers + _extra_trained(network.shape, layout, adapter) + head


def _trained_bytes(network: Network) -> tuple[float, float, float, float]:
    """(weight, gradient, master, moments together) bytes of one trained number."""
    policy, optimizer = network.precision, network.optimizer
    if network.adapter is not None:
        weight = gradient = each = network.adapter.weight_bytes
        master = 0.0
    else:
        weight, gradient, master, each = (
            policy.weight_bytes,
            policy.gradient_bytes,
            policy.master_bytes,
            policy.moment_bytes,
        )
    moment = each if optimizer.moment_bytes is None else optimizer.moment_bytes
    return weight, gradient, master, moment * optimizer.moments


def state_rows(network: Network, layout: Layout, phase: Phase, states: frozenset[State]) -> Iterator[Row]:
    """Weights and optimizer state of one network that is on the GPU."""
    policy = network.role
    divides = layout.shard.divides_weights
    if State.WEIGHTS in states:
        yield from _weight_rows(network, layout, phase, _SHARDED if divides else _WHOLE)
    if State.OPTIMIZER in states and network.trainable and not layout.offload_optimizer:
        _, _, master, moments = _trained_bytes(network)
        shrinks = _SHARDED if layout.shard.divides_optimizer else _WHOLE
        terms = model_state.optimizer_state(trained(network, layout), layout, master_bytes=master, moment_bytes=moments)
        for item, amount in terms.items():
            yield Row(
                phase=phase,
                role=policy,
                item=f"optimizer {item}" if item == "moments" else item,
                amount=amount,
                shrinks_with=shrinks,
                reads=(f"{policy}.precision", f"{policy}.optimizer"),
                spread=(0.0, 1.0) if network.optimizer.paged else (1.0, 1.0),
                note="paged: can move to the host under pressure" if network.optimizer.paged else "",
            )


def _weight_rows(network: Network, layout: Layout, phase: Phase, shrinks: tuple[str, ...]) -> Iterator[Row]:
    role = network.role

    def row(item: str, amount: Derived, key: str, **more: Any) -> Row:
        return Row(
            phase=phase, role=role, item=item, amount=amount, shrinks_with=shrinks, reads=(f"{role}.{key}",), **more
        )

    if network.tuning is Tuning.FULL:
        numbers = held(network.shape, layout, scalar_head=network.scalar_head)
        yield row(
            "weights", model_state.weights(numbers, layout, weight_bytes=network.precision.weight_bytes), "precision"
        )
        return
    if network.weights_of is None:
        frozen = network.frozen
        terms = model_state.frozen_weights(
            network.shape,
            layout,
            linear_bytes=frozen.weight_bytes,
            other_bytes=frozen.other_bytes,
            norm_bytes=4 if frozen.quantised and frozen.keeps_input else frozen.other_bytes,
            scalar_head=network.scalar_head,
        )
        # One row however the format splits them: the terms tell linears from the rest.
        value = sum(term.value for term in terms.values())
        amount = terms["weights"] if len(terms) == 1 else Derived(value, " + ".join(terms).replace(",", " and"), ())
        yield row("weights", amount, "base_precision", terms=tuple(terms.items()) if len(terms) > 1 else ())
    if network.adapter is not None:
        # A scalar head trains beside the adapters but is counted with the base's weights.
        numbers = trained(network, layout) + Held(-network.shape.hidden if network.scalar_head else 0)
        yield row(
            "adapters", model_state.weights(numbers, layout, weight_bytes=network.adapter.weight_bytes), "adapter.rank"
        )


def gradient_row(network: Network, layout: Layout, *, part: float = 1.0, note: str = "") -> Row:
    """Gradients as kept between backward and step; `part` of them while the backward is under way."""
    _, gradient_bytes, _, _ = _trained_bytes(network)
    numbers = trained(network, layout)
    if _gradients_leave(layout):
        part = 0.0
        note = "moved to the host as they are reduced"
    if part != 1.0:
        numbers = Held(round(numbers.dense * part), round(numbers.experts * part))
    return Row(
        phase=Phase.UPDATE,
        role=network.role,
        item="gradients",
        amount=model_state.gradients(numbers, layout, gradient_bytes=gradient_bytes),
        shrinks_with=_SHARDED if layout.shard.divides_gradients else _WHOLE,
        reads=(f"{network.role}.precision",),
        note=note,
    )


def _gradients_leave(layout: Layout) -> bool:
    """ZeRO-Offload (arXiv:2101.06840) and FSDP's CPU offload send each reduced gradient to the host at once."""
    zero = layout.shard in (Shard.ZERO1, Shard.ZERO2, Shard.ZERO3) and layout.offload_optimizer
    return zero or (layout.shard in (Shard.FSDP1, Shard.FSDP2) and layout.offload_parameters)


def step_row(network: Network, layout: Layout) -> Row:
    """What the optimizer's step allocates on top: foreach one copy, fused none, for-loop two of the largest tensor."""
    optimizer = network.optimizer
    weight, _, master, _ = _trained_bytes(network)
    if optimizer.step_largest and network.adapter is None:
        amount = model_state.for_loop_temporary(network.shape, state_bytes=weight)
    elif master and layout.shard.divides_optimizer and network.adapter is None:
        amount = model_state.sub_group_temporary(trained(network, layout), layout, foreach=optimizer.step_copies)
    else:
        amount = model_state.step_temporary(
            trained(network, layout), layout, copies=optimizer.step_copies, state_bytes=weight
        )
    return Row(
        phase=Phase.UPDATE,
        role=network.role,
        item="optimizer step temporary",
        amount=amount,
        shrinks_with=_SHARDED,
        reads=(f"{network.role}.optimizer",),
    )


def offloaded(job: Job, network: Network, phase: Phase) -> bool:
    """Do the network's resting bytes sit on the host in this phase although the job has it?"""
    held_at_all = bool(states_in(job, phase, network.role)) and network.placement in (
        Placement.DEVICE,
        Placement.OFFLOAD,
    )
    return held_at_all and not on_device(job, network, phase)


def resting_rows(job: Job, group: str, phase: Phase) -> list[Row]:
    """All networks of a group as they rest in a phase."""
    layout = job.layouts[group]
    rows: list[Row] = []
    for network in job.networks.values():
        if network.group == group and on_device(job, network, phase):
            states = states_in(job, phase, network.role)
            if phase is Phase.SYNC and layout.offload_between_phases:
                states -= {State.OPTIMIZER}  # only the weights come back for the engine
            on_gpu = state_rows(network, layout, phase, states)
            rows.extend(row for row in on_gpu if not (layout.offload_parameters and row.item == "weights"))
    return rows


def host_state_rows(job: Job, group: str, phase: Phase) -> list[Row]:
    """What the group's networks keep on one node's host memory in a phase."""
    layout = job.layouts[group]
    per_node = min(layout.gpus, layout.gpus_per_node)
    rows: list[Row] = []
    for network in job.networks.values():
        if network.group != group:
            continue
        states = states_in(job, phase, network.role)
        if offloaded(job, network, phase):
            held_rows = state_rows(network, layout, phase, states)
        else:
            held_rows = _offloaded_parts(network, layout, phase, states)
        rows.extend(_per_node(row, per_node) for row in held_rows)
    return rows


def _offloaded_parts(network: Network, layout: Layout, phase: Phase, states: frozenset[State]) -> Iterator[Row]:
    """Optimizer state and weights that the layout keeps on the host for good."""
    for row in state_rows(network, replace(layout, offload_optimizer=False), phase, states):
        weights = row.item == "weights"
        if (weights and layout.offload_parameters) or (
            layout.offload_optimizer and network.trainable and row.item not in ("weights", "adapters")
        ):
            yield row


def _per_node(row: Row, ranks: int) -> Row:
    inputs = (("ranks_per_node", ranks), *row.amount.inputs)
    amount = Derived(row.amount.value * ranks, f"ranks_per_node × ({row.amount.formula})", inputs)
    return replace(row, amount=amount, item=f"{row.item} on the host", basis=Basis.EXACT, shrinks_with=("shard",))
