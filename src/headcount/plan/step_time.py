"""How many seconds does each phase of one step take?

The rows of a step add up to its wall-clock. Colocated phases follow one another. An engine on GPUs of its own works
beside the trainer only as far as the staleness allows: then one row, negative, says how much of the shorter side the
longer one hides.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from headcount.errors import InputError
from headcount.estimate import time
from headcount.estimate.decode import Decode, decode_model, generate_model
from headcount.estimate.kv_cache import concurrency_cap
from headcount.estimate.replica import replica_of
from headcount.estimate.rollout import completion_lengths, quantiles, rollout_s, schedule, slowest_share
from headcount.facts.calibration import factor
from headcount.facts.decode_speed import decode_speed
from headcount.job.job import Checkpointing, Engine, EnginePlacement, Job, Network, Placement, Scope, Throughput, Tuning
from headcount.ledger.predicted import Band, Seconds
from headcount.plan.phases import engine_budget_bytes, engine_weight_bytes, in_place_sequences
from headcount.plan.residents import states_in
from headcount.plan.training_time import no_grad_s, optimizer_steps, unseen, update_parts, update_s
from headcount.vocabulary import Algorithm, Basis, Phase, Role, State

__all__ = [
    "between_rows", "generate_rows", "latency_share", "rows_per_step", "seconds_of", "step_seconds", "straggler_share",
    "tokens_per_step", "train_rows",
]  # fmt: skip


def rows_per_step(job: Job) -> float:
    """Sequences of one step: completions online, both sides of a pair, rows."""
    return job.work.rows_per_step * job.work.group_size * (2 if job.algorithm.pairs else 1)


def tokens_per_step(job: Job) -> float:
    """Prompt and completion tokens of one step."""
    return rows_per_step(job) * job.lengths.row_mean


def step_seconds(job: Job) -> tuple[Seconds, ...]:
    """One steady step by phase; the rows add up to the wall-clock."""
    generate, train, between = generate_rows(job), train_rows(job), between_rows(job)
    return (*generate, *train, *between, *_overlap(job, generate, train))


def generate_rows(job: Job) -> tuple[Seconds, ...]:
    """What the engine's GPUs do; nothing offline."""
    return () if job.engine is None else (_generate(job, job.engine),)


def train_rows(job: Job) -> tuple[Seconds, ...]:
    """What the trainer's GPUs do: score, update."""
    return tuple(_update(job)) if job.engine is None else (*_score(job), *_update(job))


def between_rows(job: Job) -> tuple[Seconds, ...]:
    """What both sides wait for: weights to the engine, wake-up, fixed costs."""
    return () if job.engine is None else (*_sync(job, job.engine), _fixed())


def seconds_of(rows: Sequence[Seconds]) -> Band:
    """Rows in turn."""
    return sum((row.band for row in rows), start=Band.exactly(0))


def _overlap(job: Job, generate: Sequence[Seconds], train: Sequence[Seconds]) -> Iterator[Seconds]:
    """max(generate, train) = generate + train − min(generate, train), when the engine runs ahead of the trainer."""
    if job.engine is None or not job.engine.staleness:
        return
    one, other = seconds_of(generate), seconds_of(train)
    hidden = Band(*(-min(a, b) for a, b in zip(_ends(one), _ends(other), strict=True)))
    shorter, longer = ("generation", "training") if one.p50 < other.p50 else ("training", "generation")
    yield Seconds(
        name="overlap",
        band=hidden,
        because=f"{shorter} runs beside {longer} on other GPUs (staleness {job.engine.staleness})",
        basis=Basis.CALIBRATED,
    )


def _ends(band: Band) -> tuple[float, float, float]:
    return band.p10, band.p50, band.p90


def _fixed() -> Seconds:
    band = time.times(1.0, factor("step-seconds"))
    return Seconds(name="fixed", band=band, because="data, scheduling, metrics", basis=Basis.CALIBRATED)


# --- generation --------------------------------------------------------------------------------------------------


def _generate(job: Job, engine: Engine) -> Seconds:
    """Prefill shared by the group, then the slowest replica's decode over the length distribution."""
    replicas, tensor = _replicas(job)
    if engine.throughput is not None:
        return _stated(job, engine, engine.throughput, replicas=replicas, tensor=tensor)
    sequences = -(-job.work.rows_per_step * job.work.group_size // replicas)
    lengths = _lengths(job)
    slowest = slowest_share(lengths, prompts=job.work.rows_per_step, group_size=job.work.group_size, replicas=replicas)
    batches = 1 + engine.staleness  # the tail of one batch decodes beside the head of the next
    cap = _concurrency(job, engine, sequences * batches)
    model = _refitted(job, _decode(job, engine, tensor), replicas)
    order = schedule(
        lengths,
        sequences=round(sequences * slowest) * batches,
        cap=cap,
        prompt_tokens=job.lengths.prompt_mean,
    )
    prompts = sequences / (job.work.group_size if engine.shared_prefill else 1)
    mean = job.lengths.prompt_mean
    prefill = _spread_as(model, model.prefill_s(prompts * mean, mean))
    decode = Band(*(rollout_s(order, step) / batches for step in model.step_s))
    return Seconds(
        name=Phase.GENERATE,
        band=decode + prefill,
        because=(
            f"{replicas} replica(s) × {sequences:,} completions (the busiest {slowest:.2f} ×), {cap:,} at once, mean "
            f"{job.lengths.completion_mean:g} cap {job.lengths.completion_max:,} tokens; step = {model.because}; "
            f"prefill {prefill.p50:.1f} s"
        ),
        basis=Basis.CALIBRATED,
        refit=model.refit,
    )


def _refitted(job: Job, model: Decode, replicas: int) -> Decode:
    """The model through one measurement of this job's own engine: every step longer or shorter by the same factor."""
    seen = job.observed.decode
    if seen is None:
        return model
    live = seen.concurrency / (replicas if seen.scope is Scope.AGGREGATE else 1)
    cached = live * (job.lengths.prompt_mean + job.lengths.completion_mean / 2)
    streams = seen.concurrency if seen.scope is Scope.AGGREGATE else 1
    predicted = streams / model.step_s[1](live, cached)
    factor, (low, high) = predicted / seen.tokens_per_s, model.measured_spread
    return model.rescaled(
        factor,
        f"decode {predicted:,.0f} → {seen.tokens_per_s:,.0f} tokens/s ({seen.scope}, {seen.concurrency:,} at once); so "
        f"every step and prefill of this engine × {factor:.2f}, trusted from × {low:.2f} to × {high:.2f} (80 %)",
    )


def _spread_as(model: Decode, seconds: float) -> Band:
    """The band that the model gives its steps."""
    low, high = model.spread
    return Band(seconds * low, seconds, seconds * high)


def straggler_share(job: Job) -> float:
    """Share of generation in which all but the busiest replica have nothing left to do."""
    if job.engine is None or job.engine.throughput is not None:
        return 0.0
    busiest = slowest_share(
        _lengths(job), prompts=job.work.rows_per_step, group_size=job.work.group_size, replicas=_replicas(job)[0]
    )
    return 1 - 1 / busiest


def latency_share(job: Job) -> float:
    """Share of generation that one answer of the greatest length would take alone: no number of GPUs shortens it."""
    engine = job.engine
    if engine is None or engine.throughput is not None:
        return 0.0
    longest = max(_lengths(job))
    replicas, tensor = _replicas(job)
    alone = longest * _refitted(job, _decode(job, engine, tensor), replicas).step_s[1](1, job.lengths.prompt_mean)
    return min(1.0, alone / _generate(job, engine).band.p50)


def _replicas(job: Job) -> tuple[int, int]:
    """(engine replicas, tensor ranks of each)."""
    engine = job.engine
    assert engine is not None
    layout = job.layouts[engine.group]
    tensor = engine.tensor if engine.placement is not EnginePlacement.SHARED else layout.tensor
    return max(1, layout.gpus // (tensor * engine.pipeline)), tensor


def _lengths(job: Job) -> tuple[float, ...]:
    lengths = job.lengths
    if lengths.completion_quantiles:
        return quantiles(lengths.completion_quantiles)
    return completion_lengths(lengths.completion_mean, lengths.completion_max, lengths.completion_sigma)


_ENGINES = {"builtin": "vllm", "hf": "vllm", "trtllm": "tensorrt_llm"}  # whose host costs stand for it


def _decode(job: Job, engine: Engine, tensor: int) -> Decode:
    shape = job.policy.shape
    half = "bf16" if "bf16" in job.gpu.flops_per_s else "fp16"
    precision = half if engine.precision == "bf16" else engine.precision
    replica = replica_of(
        shape,
        job.gpu,
        precision=precision,
        kv_bytes=engine.kv_bytes,
        tensor=tensor,
        pipeline=engine.pipeline,
    )
    host = _ENGINES.get(engine.name, engine.name)
    speed = decode_speed(job.gpu.architecture, precision, host, mixture=shape.moe)
    if engine.name == "hf":
        return generate_model(replica, speed)
    return decode_model(replica, speed, eager=engine.name == "builtin" or engine.eager)


def _stated(job: Job, engine: Engine, stated: Throughput, *, replicas: int, tensor: int) -> Seconds:
    """A rate that the user measured: prompts × group × completion tokens ÷ rate; one stream's rate, simulated."""
    _refuse_per_stream(job, engine, stated, tensor=tensor)
    work = job.work.rows_per_step * job.work.group_size
    if stated.scope is Scope.AGGREGATE:
        seconds = work * job.lengths.completion_mean / stated.tokens_per_s
        because = f"{work:,} completions × {job.lengths.completion_mean:g} tokens ÷ {stated.tokens_per_s:g} tokens/s"
    else:
        sequences = -(-work // replicas)
        cap = min(stated.concurrency, sequences)
        order = schedule(_lengths(job), sequences=sequences, cap=cap, prompt_tokens=job.lengths.prompt_mean)
        seconds = rollout_s(order, lambda live, cached: 1 / stated.tokens_per_s)
        because = f"{stated.tokens_per_s:g} tokens/s a stream, {cap:,} at once on each of {replicas} replica(s)"
    return Seconds(name=Phase.GENERATE, band=Band.exactly(seconds), because=f"{because}, as measured by you",
                   basis=Basis.CALIBRATED)  # fmt: skip


def _refuse_per_stream(job: Job, engine: Engine, stated: Throughput, *, tensor: int) -> None:
    """All streams together make more than the fastest single one could: else the rate is one stream's."""
    if stated.scope is Scope.PER_STREAM or stated.concurrency < 4:
        return
    fast = _decode(job, engine, tensor).step_s[0]
    alone = 1 / fast(1, job.lengths.prompt_mean)
    if stated.tokens_per_s < alone:
        raise InputError.one(
            "rollout.throughput.scope",
            f"{stated.tokens_per_s:g} tokens/s is said to be all {stated.concurrency:,} sequences' together, but a "
            f"single one reaches up to {alone:,.0f} here: it looks like one stream's rate",
            'scope = "per-stream"',
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


def _score(job: Job) -> Iterator[Seconds]:
    """One forward per network that scores. The old log-probs need none when one mini-batch makes the step."""
    rows, tokens = rows_per_step(job), tokens_per_step(job)
    on_policy = job.work.passes == 1 and job.work.mini_batch_rows >= job.work.rows_per_step
    for network in job.networks.values():
        works = State.FORWARD in states_in(job, Phase.SCORE, network.role)
        if not works or (network.role is Role.POLICY and on_policy):
            continue
        yield Seconds(
            name=f"{Phase.SCORE} {network.role}",
            band=_slower(no_grad_s(job, network, rows=rows), "no-grad-pass"),
            because=f"2 FLOPs × active parameters × {tokens:,.0f} tokens",
            basis=Basis.CALIBRATED,
        )
    yield from _verifier(job)


def _verifier(job: Job) -> Iterator[Seconds]:
    """A reward function's own seconds."""
    upkeep, completions = job.upkeep, rows_per_step(job)
    if upkeep.verifier_s:
        seconds = completions * upkeep.verifier_s / upkeep.verifier_workers
        because = f"{completions:,.0f} completions × {upkeep.verifier_s:g} s ÷ {upkeep.verifier_workers:,} workers"
        yield Seconds(
            name=f"{Phase.SCORE} function", band=Band.exactly(seconds), because=because, basis=Basis.DATASHEET
        )


def _update(job: Job) -> Iterator[Seconds]:
    tokens = tokens_per_step(job)
    for network in job.networks.values():
        if not network.trainable:
            continue
        band = update_s(job, network)
        full, recompute = network.tuning is Tuning.FULL, job.kernels.checkpointing is Checkpointing.FULL
        times_n = (6 if full else 4) + (2 if recompute else 0)
        yield Seconds(
            name=f"{Phase.UPDATE} {network.role}",
            band=_in_rl(job, network, band),
            because=(
                f"{times_n} FLOPs × active parameters × {tokens * job.work.passes:,.0f} tokens in "
                f"{optimizer_steps(job):,} optimizer step(s), each: {update_parts(job, network)}"
            ),
            basis=Basis.CALIBRATED,
            refit=_refit_text(job, network, band),
        )
    reference = job.networks.get(Role.REFERENCE)
    if job.algorithm is Algorithm.DPO and reference is not None and reference.placement is not Placement.CACHED:
        yield Seconds(
            name=f"{Phase.UPDATE} {Role.REFERENCE}",
            band=no_grad_s(job, reference, rows=rows_per_step(job)),
            because="the frozen forward over the same pairs",
            basis=Basis.CALIBRATED,
        )


def _refit_text(job: Job, network: Network, band: Band) -> str:
    """What one measured training rate changed; empty where none was given."""
    seen = job.observed.train_tokens_per_s_per_gpu
    if seen is None:
        return ""
    before = unseen(job)
    own = _in_rl(before, job.policy, update_s(before, job.policy)).p50
    factor = update_s(job, job.policy).p50 / own
    return (
        f"training {seen * factor:,.0f} → {seen:,.0f} tokens/s per GPU; so the {network.role}'s update × {factor:.2f}, "
        f"trusted from × {band.p10 / band.p50:.2f} to × {band.p90 / band.p50:.2f} (80 %)"
    )


def _in_rl(job: Job, network: Network, band: Band) -> Band:
    """An update inside an RL step costs more than plain training; one that was seen there already includes it."""
    if not job.algorithm.online or job.observed.train_tokens_per_s_per_gpu is not None:
        return band
    return _slower(band, "rl-update-mixture" if network.shape.moe else "rl-update")


def _slower(band: Band, name: str) -> Band:
    """What the passes of an RL step cost over those of plain training."""
    return time.scaled(band, factor(name))


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
