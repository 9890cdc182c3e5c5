"""How long is each stage of a job and what does it cost: start-up, one-time passes, the run, what stands around it?"""

from __future__ import annotations

from collections.abc import Iterator

from headcount.errors import UnknownFact
from headcount.estimate import time
from headcount.estimate.cost import dollars, energy_dollars
from headcount.facts.calibration import factor
from headcount.facts.price import find_price
from headcount.job.job import EnginePlacement, Job, Network, Placement
from headcount.ledger.predicted import Band, Seconds, Stage
from headcount.plan.residents import residents, trained_parameters
from headcount.plan.step_time import (
    between_rows,
    generate_rows,
    seconds_of,
    step_seconds,
    train_rows,
)
from headcount.plan.training_time import no_grad_s
from headcount.vocabulary import Algorithm, Basis, Phase, Role

__all__ = ["stages"]

_STAGE_NAMES = {
    Algorithm.PPO: "PPO",
    Algorithm.GRPO: "GRPO",
    Algorithm.DPO: "DPO",
    Algorithm.REWARD_MODEL: "reward-model training",
    Algorithm.SFT: "SFT",
}


def stages(job: Job) -> tuple[Stage, ...]:
    """The job's stages in order. Empty when the card's speed is unknown."""
    try:
        return tuple(_stages(job))
    except UnknownFact:
        return ()


def _stages(job: Job) -> Iterator[Stage]:
    if job.money.usd_per_preference is not None:
        yield _labels(job, job.money.usd_per_preference)
    yield _stage(job, "start-up", 1, tuple(_start(job)), around=True)
    reference = job.networks.get(Role.REFERENCE)
    if reference is not None and reference.placement is Placement.CACHED:
        yield _stage(job, "reference cache pass", 1, (_cache_pass(job, reference),))
    step = step_seconds(job)
    yield _stage(job, _STAGE_NAMES[job.algorithm], job.work.steps, step, idle_gpu_s=_idle_gpu_s(job, step))
    yield _stage(job, "checkpoints", job.upkeep.saves(job.work.steps), (_save(job),), around=True)
    if evaluations := job.upkeep.evaluations(job.work.steps):
        yield _stage(job, "evaluation", evaluations, (_evaluate(job, step),), around=True)


# --- one-time rows -------------------------------------------------------------------------------------------------


def _cache_pass(job: Job, reference: Network) -> Seconds:
    seconds = no_grad_s(job, reference, rows=2 * job.work.rows)
    return Seconds(name=Phase.CACHE, band=seconds, because="one forward over all pairs", basis=Basis.CALIBRATED)


def _start(job: Job) -> Iterator[Seconds]:
    """Weights from disk to every node, then the engine's own start and what is compiled."""
    read = sum(resident.parameters * 2 for resident in residents(job) if resident.weights_of is None)
    yield Seconds(
        name=Phase.LOAD,
        band=time.times(read, factor("load-bytes-per-second"), inverse=True),
        because=f"{read / 1e9:,.1f} GB of weights from disk on every node",
        basis=Basis.ASSUMED,
    )
    if job.engine is not None and job.engine.placement is not EnginePlacement.SHARED:
        band = time.times(1.0, factor("engine-start-seconds"))
        yield Seconds(name="engine", band=band, because="profiling run, graphs, cache", basis=Basis.ASSUMED)
    if job.kernels.compiled:
        band = time.times(1.0, factor("compile-seconds"))
        yield Seconds(name="compile", band=band, because="torch.compile of one block", basis=Basis.ASSUMED)


def _save(job: Job) -> Seconds:
    """Weights and optimizer state of what trains; adapters alone under LoRA. Every node writes its share."""
    written = sum(_written_bytes(network) for network in job.networks.values() if network.trainable)
    nodes = max(1, job.layouts["train"].nodes)
    return Seconds(
        name=Phase.SAVE,
        band=time.times(written / nodes, factor("save-bytes-per-second"), inverse=True),
        because=f"{written / 1e9:,.1f} GB of weights and optimizer state from {nodes:,} node(s)",
        basis=Basis.ASSUMED,
    )


def _written_bytes(network: Network) -> float:
    policy, optimizer = network.precision, network.optimizer
    moment = policy.moment_bytes if optimizer.moment_bytes is None else optimizer.moment_bytes
    a_number = policy.weight_bytes + policy.master_bytes + optimizer.moments * moment
    return a_number * trained_parameters(network)


def _evaluate(job: Job, step: tuple[Seconds, ...]) -> Seconds:
    """Evaluation prompts generate (online) or run forward (offline) as the run's own do, in proportion."""
    samples = job.upkeep.evaluation_prompts * job.upkeep.evaluation_samples
    if job.engine is None:
        band = no_grad_s(job, job.policy, rows=samples)
        because = f"one forward over {samples:,} rows"
    else:
        share = samples / (job.work.rows_per_step * job.work.group_size)
        generate = next(row for row in step if row.name == Phase.GENERATE)
        band, because = generate.band.scaled(share), f"{samples:,} completions, {share:.2f} of a step's"
    return Seconds(name=Phase.EVAL, band=band, because=because, basis=Basis.CALIBRATED)


def _labels(job: Job, usd_per_preference: float) -> Stage:
    """Preference labels cost money and no GPU."""
    return Stage(
        name="preference labels",
        gpus=0,
        steps=1,
        step=(),
        hours=Band.exactly(0),
        dollars=Band.exactly(job.work.rows * usd_per_preference),
        price_source=f"{job.work.rows:,} pairs × ${usd_per_preference:g}",
    )


# --- money ---------------------------------------------------------------------------------------------------------


def _stage(
    job: Job, name: str, steps: int, step: tuple[Seconds, ...], *, idle_gpu_s: float = 0.0, around: bool = False
) -> Stage:
    total = Band.exactly(0)
    for part in step:
        total = total.together(part.band)
    hours = total.scaled(steps / 3600)
    cost, source = _price(job, hours)
    return Stage(
        name=name,
        gpus=job.gpus,
        steps=steps,
        step=step,
        hours=hours,
        dollars=cost,
        price_source=source,
        idle_gpu_hours=idle_gpu_s * steps / 3600,
        energy_dollars=_energy(job, hours),
        around=around,
    )


def _price(job: Job, hours: Band) -> tuple[Band | None, str]:
    """The stated price, else the table's offer; None where there is none, never a made-up one."""
    money = job.money
    if money.price_per_gpu_hour is not None:
        return dollars(hours, gpus=job.gpus, usd_per_gpu_hour=money.price_per_gpu_hour), "given"
    price = find_price(job.gpu.id, gpus=job.gpus, provider=money.provider, spot=money.spot)
    if price is None:
        wanted = [word for word, asked in (("spot", money.spot), (money.provider or "", money.provider)) if asked]
        return None, f"no {' '.join([*wanted, 'price row'])} for this GPU: give --price"
    usd = price.usd(spot=money.spot)
    cost = dollars(hours, gpus=job.gpus, usd_per_gpu_hour=usd, instance_gpus=price.instance_gpus)
    return cost, price.label(spot=money.spot)


def _energy(job: Job, hours: Band) -> Band | None:
    """Only where a price of energy is stated: the cards' power limit for the whole time."""
    if job.money.usd_per_kwh is None or job.gpu.tdp_w is None:
        return None
    return energy_dollars(hours, gpus=job.gpus, watts=job.gpu.tdp_w, usd_per_kwh=job.money.usd_per_kwh)


def _idle_gpu_s(job: Job, step: tuple[Seconds, ...]) -> float:
    """GPU-seconds of one step in which one side of a split waits for the other."""
    if job.engine is None or job.engine.placement is not EnginePlacement.SEPARATE:
        return 0.0
    wall = sum(row.band.p50 for row in step)
    generating, training, both = (seconds_of(rows(job)).p50 for rows in (generate_rows, train_rows, between_rows))
    engine_gpus = job.layouts[job.engine.group].gpus
    idle_engine, idle_trainer = wall - generating - both, wall - training - both
    return max(0.0, idle_engine) * engine_gpus + max(0.0, idle_trainer) * (job.gpus - engine_gpus)
