"""How long is each stage of a job, phase by phase, and what does it cost?

Colocated phases add up; engines on GPUs of their own still wait for the update here (no staleness is assumed).
"""

from __future__ import annotations

from collections.abc import Iterator

from headcount.errors import UnknownFact
from headcount.estimate import time
from headcount.estimate.cost import dollars
from headcount.estimate.kv_cache import concurrency_cap
from headcount.estimate.rollout import completion_lengths, rollout_s, schedule
from headcount.facts.calibration import factor
from headcount.facts.price import find_price
from headcount.job.job import Checkpointing, Engine, EnginePlacement, Job, Network, Placement, Tuning
from headcount.ledger.predicted import Band, Seconds, Stage
from headcount.plan.phases import engine_budget_bytes, engine_weight_bytes, in_place_sequences
from headcount.plan.residents import states_in
from headcount.vocabulary import Algorithm, Basis, Phase, Role, State

__all__ = ["stages", "step_seconds"]

_STAGE_NAMES = {
    Algorithm.PPO: "PPO",
    Algorithm.GRPO: "GRPO",
    Algorithm.DPO: "DPO",
    Algorithm.REWARD_MODEL: "reward-model training",
    Algorithm.SFT: "SFT",
}


def stages(job: Job) -> tuple[Stage, ...]:
    """The job's stages in order: DPO's cache pass, then the run. Empty when the card's speed is unknown."""
    try:
        return tuple(_stages(job))
    except UnknownFact:
        return ()


def _stages(job: Job) -> Iterator[Stage]:
    reference = job.networks.get(Role.REFERENCE)
    if reference is not None and reference.placement is Placement.CACHED:
        seconds = _forward(job, reference, tokens=_tokens_per_step(job) * job.work.steps)
        forward = Seconds(name=Phase.CACHE, band=seconds, because="one forward over all pairs", basis=Basis.CALIBRATED)
        yield _stage(job, "reference cache pass", 1, (forward,))
    yield _stage(job, _STAGE_NAMES[job.algorithm], job.work.steps, tuple(step_seconds(job)))


def _stage(job: Job, name: str, steps: int, step: tuple[Seconds, ...]) -> Stage:
    total = Band.exactly(0)
    for part in step:
        total = total.together(part.band)
    hours = total.scaled(steps / 3600)
    price = find_price(job.gpu.id, gpus=job.gpus)
    cost, source = None, "no price row for this GPU: give --price"
    if job.price_per_gpu_hour is not None:
        cost, source = dollars(hours, gpus=job.gpus, usd_per_gpu_hour=job.price_per_gpu_hour), "given"
    elif price is not None:
        cost = dollars(hours, gpus=job.gpus, usd_per_gpu_hour=price.on_demand_usd, instance_gpus=price.instance_gpus)
        source = price.label
    return Stage(name=name, gpus=job.gpus, steps=steps, step=step, hours=hours, dollars=cost, price_source=source)


def _rows_per_step(job: Job) -> float:
    """Sequences of one step: completions online, both sides of a pair, rows."""
    return job.work.rows_per_step * job.work.group_size * (2 if job.algorithm.pairs else 1)


def _tokens_per_step(job: Job) -> float:
    return _rows_per_step(job) * job.lengths.row_mean


def step_seconds(job: Job) -> Iterator[Seconds]:
    """One step by phase."""
    if job.engine is not None:
        yield _generate(job, job.engine)
        yield from _score(job)
    yield from _update(job)
    if job.engine is not None:
        yield from _sync(job, job.engine)
        fixed = factor("step-seconds")
        yield Seconds(
            name="fixed", band=time.times(1.0, fixed), because="data, scheduling, metrics", basis=Basis.CALIBRATED
        )


# --- generation --------------------------------------------------------------------------------------------------


def _generate(job: Job, engine: Engine) -> Seconds:
    """Prefill shared by the group, then the slowest replica's decode over the length distribution."""
    shape, lengths = job.policy.shape, job.lengths
    tensor = engine.tensor if engine.placement is not EnginePlacement.SHARED else job.layouts[engine.group].tensor
    layout = job.layouts[engine.group]
    replicas = max(1, layout.gpus // (tensor * engine.pipeline))
    sequences = -(-job.work.rows_per_step * job.work.group_size // replicas)
    cap = _concurrency(job, engine, sequences)
    model = time.decode_model(
        shape,
        job.gpu,
        tensor=tensor,
        weight_bytes=engine.weight_bytes,
        kv_bytes=engine.kv_bytes,
        eager=engine.name == "hf" or engine.eager,
    )
    drawn = completion_lengths(lengths.completion_mean, lengths.completion_max)
    order = schedule(drawn, sequences=sequences, cap=cap, prompt_tokens=lengths.prompt_mean)
    runs = [rollout_s(order, step) for step in model.step_s]
    prompts = sequences / (job.work.group_size if engine.shared_prefill else 1)
    prefill = time.forward_s(
        shape, job.gpu, tokens=prompts * lengths.prompt_mean, row_tokens=lengths.prompt_mean, gpus=tensor
    )
    return Seconds(
        name=Phase.GENERATE,
        band=Band(*runs) + prefill,
        because=(
            f"{replicas} replica(s) × {sequences:,} completions, {cap:,} at once, mean {lengths.completion_mean:g} "
            f"cap {lengths.completion_max:,} tokens; step = {model.because}; prefill {prefill.p50:.1f} s"
        ),
        basis=Basis.CALIBRATED,
    )


def _concurrency(job: Job, engine: Engine, sequences: int) -> int:
    """Sequences that decode at once on one replica: the cache budget, the engine's limit, the work."""
    if engine.placement is EnginePlacement.SHARED:
        return in_place_sequences(job, engine)
    budget = engine_budget_bytes(job, engine) - engine_weight_bytes(job, engine)
    typical = round(job.lengths.prompt_mean + job.lengths.completion_mean)
    held = concurrency_cap(
        job.policy.shape, budget_bytes=max(0.0, budget), tokens=typical, kv_bytes=engine.kv_bytes, tensor=engine.tensor
    )
    return max(1, min(held, engine.max_sequences, sequences))


# --- scoring, update, sync -----------------------------------------------------------------------------------------


def _forward(job: Job, network: Network, *, tokens: float) -> Band:
    return time.forward_s(
        network.shape,
        job.gpu,
        tokens=tokens,
        row_tokens=job.lengths.row_mean,
        gpus=job.layouts[network.group].gpus,
        scalar_head=network.scalar_head,
    )


def _score(job: Job) -> Iterator[Seconds]:
    """One forward per network that scores. The old log-probs need none when one mini-batch makes the step."""
    on_policy = job.work.passes == 1 and job.work.mini_batch_rows >= job.work.rows_per_step
    for network in job.networks.values():
        works = State.FORWARD in states_in(job, Phase.SCORE, network.role)
        if not works or (network.role is Role.POLICY and on_policy):
            continue
        yield Seconds(
            name=f"{Phase.SCORE} {network.role}",
            band=_forward(job, network, tokens=_tokens_per_step(job)),
            because=f"2 FLOPs × active parameters × {_tokens_per_step(job):,.0f} tokens",
            basis=Basis.CALIBRATED,
        )


def _update(job: Job) -> Iterator[Seconds]:
    tokens = _tokens_per_step(job)
    recompute = job.kernels.checkpointing is Checkpointing.FULL
    for network in job.networks.values():
        if not network.trainable:
            continue
        full = network.tuning is Tuning.FULL
        band = time.update_s(
            network.shape,
            job.gpu,
            tokens=tokens * job.work.passes,
            row_tokens=job.lengths.row_mean,
            gpus=job.layouts[network.group].gpus,
            full=full,
            recompute=recompute,
            scalar_head=network.scalar_head,
            online=job.algorithm.online,
        )
        times_n = (6 if full else 4) + (2 if recompute else 0)
        yield Seconds(
            name=f"{Phase.UPDATE} {network.role}",
            band=band,
            because=f"{times_n} FLOPs × active parameters × {tokens * job.work.passes:,.0f} tokens and attention",
            basis=Basis.CALIBRATED,
        )
    reference = job.networks.get(Role.REFERENCE)
    if job.algorithm is Algorithm.DPO and reference is not None and reference.placement is not Placement.CACHED:
        yield Seconds(
            name=f"{Phase.UPDATE} {Role.REFERENCE}",
            band=_forward(job, reference, tokens=tokens),
            because="the frozen forward over the same pairs",
            basis=Basis.CALIBRATED,
        )


def _sync(job: Job, engine: Engine) -> Iterator[Seconds]:
    if engine.placement is EnginePlacement.SHARED:
        return
    yield Seconds(
        name=Phase.SYNC, band=time.sync_s(job.policy.shape), because="weights to the engine", basis=Basis.CALIBRATED
    )
    if engine.sleep_level == 1:
        moved = engine_weight_bytes(job, engine)
        yield Seconds(
            name="wake", band=time.wake_s(moved), because="engine weights to the host and back", basis=Basis.CALIBRATED
        )
