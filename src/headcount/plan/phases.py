"""Which bytes are alive outside the update: load, cache pass, generation, scoring, weight sync, save, evaluation?"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from headcount.estimate import activations, kv_cache, logits, sharding
from headcount.estimate.model_state import held, weights
from headcount.facts.overhead import overheads
from headcount.job.job import Engine, EnginePlacement, Job, MicroBatch, Network, Placement
from headcount.job.layout import Layout, Load, Shard
from headcount.ledger.derivation import Derived, derive
from headcount.ledger.predicted import Moment, Row
from headcount.plan.passes import gathered, layer_passes, no_grad_pass, update_pass
from headcount.plan.residents import states_in
from headcount.plan.state_rows import gradient_row, resting_rows
from headcount.plan.update import update_moments
from headcount.vocabulary import Basis, Phase, Role, State

__all__ = [
    "cache_file_row",
    "engine_budget_bytes",
    "engine_weight_bytes",
    "host_load_row",
    "in_place_sequences",
    "phase_moments",
]


def phase_moments(job: Job, group: str, phase: Phase) -> Iterator[Moment]:
    """Every moment of one phase on one group of GPUs, fixed costs and the resting networks included."""
    resting = [*fixed_rows(job, group, phase), *resting_rows(job, group, phase)]
    if phase is Phase.LOAD:
        yield from _load(job, group, resting)
    elif phase in (Phase.GENERATE, Phase.EVAL):
        yield from _generate(job, group, phase, resting)
    elif phase in (Phase.SCORE, Phase.CACHE):
        yield from _score(job, group, phase, resting)
    elif phase is Phase.UPDATE:
        yield from _update(job, group, resting)
    else:
        yield from _gather(job, group, phase, resting)


def fixed_rows(job: Job, group: str, phase: Phase) -> Iterator[Row]:
    """CUDA context, NCCL, and what a colocated engine holds while it is not generating."""
    yield _overhead("cuda-context", phase, "CUDA context")
    if job.layouts[group].gpus > 1:
        yield _overhead("nccl", phase, "NCCL")
    engine = job.engine
    if engine is None or engine.group != group or engine.placement is EnginePlacement.SHARED:
        return
    if phase in (Phase.GENERATE, Phase.EVAL, Phase.LOAD):
        return
    if engine.sleep_level == 0:
        yield from _engine_rows(job, engine, phase)
        return
    yield _overhead("engine-residue", phase, "asleep engine's residue", role=Role.GENERATOR)
    if phase is Phase.SYNC:
        yield _engine_weights(job, engine, phase)


def _overhead(name: str, phase: Phase, item: str, role: Role | None = None) -> Row:
    fact = overheads()[name]
    return Row(
        phase=phase,
        role=role,
        item=item,
        amount=derive("measured_bytes", source=f"{fact.source} ({fact.date})", measured_bytes=fact.typical_bytes),
        basis=Basis.CALIBRATED,
        spread=fact.spread,
        note=fact.meaning,
        allocator=False,
    )


# --- generation --------------------------------------------------------------------------------------------------


def _generate(job: Job, group: str, phase: Phase, resting: list[Row]) -> Iterator[Moment]:
    engine = job.engine
    if engine is None:
        if phase is Phase.EVAL and group == job.policy.group:
            yield from _no_grad(job, job.policy, phase, job.score, resting)
        return
    if engine.group == group and engine.placement is not EnginePlacement.SHARED:
        rows = (*resting, *_engine_rows(job, engine, phase))
        yield Moment(phase=phase, name="decode", acting=Role.GENERATOR, rows=rows)
    elif engine.group == group:
        yield from _in_place(job, engine, phase, resting)
    elif resting:
        # The engine works elsewhere; this group waits with what it holds.
        yield Moment(phase=phase, name="wait", acting=None, rows=tuple(resting))


def _engine_layout(job: Job, engine: Engine) -> Layout:
    return replace(
        job.layouts[engine.group],
        gpus=engine.tensor * engine.pipeline,
        tensor=engine.tensor,
        pipeline=engine.pipeline,
        expert=min(engine.expert, engine.tensor),
        context=1,
        layer_split=1,
        shard=Shard.NONE,
    )


def _engine_weights(job: Job, engine: Engine, phase: Phase) -> Row:
    layout = _engine_layout(job, engine)
    if engine.expert > 1:
        # Expert parallelism in an engine runs over its tensor ranks: experts are divided once, not twice.
        dense = held(job.policy.shape, replace(layout, expert=1), select=lambda t: not t.module.startswith("experts."))
        experts = held(job.policy.shape, replace(layout, tensor=1), select=lambda t: t.module.startswith("experts."))
        numbers = dense + experts
    else:
        numbers = held(job.policy.shape, layout)
    return Row(
        phase=phase,
        role=Role.GENERATOR,
        item="weights",
        amount=weights(numbers, layout, weight_bytes=engine.weight_bytes),
        shrinks_with=("engine tensor", "engine pipeline"),
        reads=("rollout.engine_tensor", "rollout.engine_precision"),
        note=f"{engine.name}'s own copy of the policy",
        allocator=False,
    )


def engine_budget_bytes(job: Job, engine: Engine) -> float:
    """vLLM's share: memory_fraction × total memory of the card, weights included."""
    total = job.gpu.reported_bytes or job.gpu.marketed_bytes
    return (engine.memory_fraction or 0.0) * total


def _engine_rows(job: Job, engine: Engine, phase: Phase) -> list[Row]:
    """Weights, workspace and the KV cache that fills what is left of the engine's share."""
    weight_row = _engine_weights(job, engine, phase)
    workspace = _overhead("engine-workspace", phase, "engine workspace", role=Role.GENERATOR)
    budget = engine_budget_bytes(job, engine)
    cache = derive(
        "max(memory_fraction × total_bytes − weights − workspace, one_sequence)",
        source="vLLM: KV = utilisation × total − weights − non-torch − activation peak − graphs",
        memory_fraction=engine.memory_fraction or 0.0,
        total_bytes=budget / (engine.memory_fraction or 1.0),
        weights=weight_row.bytes,
        workspace=workspace.bytes,
        one_sequence=_sequence_cache(job, engine, 1).value,
    )
    # The share bounds the sum: what the workspace does not take, the cache does.
    fixed = replace(workspace, spread=(1.0, 1.0))
    return [
        weight_row,
        fixed,
        Row(
            phase=phase,
            role=Role.GENERATOR,
            item="kv cache",
            amount=cache,
            reads=("rollout.memory_fraction",),
            note="fills the engine's share, whatever the load",
            allocator=False,
        ),
    ]


def _sequence_cache(job: Job, engine: Engine, sequences: float) -> Derived:
    return kv_cache.kv_cache(
        job.policy.shape,
        sequences=sequences,
        tokens=job.lengths.row_max,
        kv_bytes=engine.kv_bytes,
        tensor=engine.tensor,
        pipeline=engine.pipeline,
    )


def in_place_sequences(job: Job, engine: Engine) -> int:
    """Sequences that one GPU decodes at once with the policy's own weights."""
    layout = job.layouts[engine.group]
    per_rank = -(-job.work.rows_per_step * job.work.group_size // max(1, layout.data))
    return max(1, min(engine.max_sequences, per_rank))


def _in_place(job: Job, engine: Engine, phase: Phase, resting: list[Row]) -> Iterator[Moment]:
    """Generation with the policy's own weights: prefill, then decode over a growing cache."""
    policy, layout = job.networks[Role.POLICY], job.layouts[engine.group]
    sequences = in_place_sequences(job, engine)
    prompts = sequences if not engine.shared_prefill else -(-sequences // job.work.group_size)
    prompt = MicroBatch(sequences=prompts, row_tokens=job.lengths.prompt_max, logit_tokens=1, rows=job.update.rows)
    run = no_grad_pass(job, policy, prompt)
    gather = list(_in_place_gather(policy, layout, phase, whole=engine.gathers_whole))

    def row(item: str, amount: Derived, *reads: str) -> Row:
        return Row(
            phase=phase,
            role=Role.GENERATOR,
            item=item,
            amount=amount,
            shrinks_with=("data", "tensor"),
            reads=("rollout.max_sequences", *reads),
        )

    prefill_cache = kv_cache.kv_cache(
        policy.shape, sequences=prompts, tokens=job.lengths.prompt_max, kv_bytes=engine.kv_bytes, tensor=layout.tensor
    )
    trunk = row("prefill activations", activations.no_grad_trunk(policy.shape, run=run), "rollout.shared_prefill")
    yield Moment(
        phase=phase,
        name="prefill",
        acting=Role.GENERATOR,
        rows=(*resting, *gather, row("kv cache", prefill_cache), trunk),
    )
    full_cache = kv_cache.kv_cache(
        policy.shape, sequences=sequences, tokens=job.lengths.row_max, kv_bytes=engine.kv_bytes, tensor=layout.tensor
    )
    growth = kv_cache.cache_growth(
        policy.shape, sequences=sequences, tokens=job.lengths.row_max, kv_bytes=engine.kv_bytes, tensor=layout.tensor
    )
    logits_row = row("decode logits", kv_cache.decode_step(policy.shape, sequences=sequences))
    rows = [*resting, *gather, row("kv cache", full_cache), logits_row]
    if engine.name == "hf":
        rows.append(row("cache growth", growth))
    yield Moment(phase=phase, name="decode", acting=Role.GENERATOR, rows=tuple(rows))


def _in_place_gather(policy: Network, layout: Layout, phase: Phase, *, whole: bool) -> Iterator[Row]:
    """A sharded policy is gathered for generation: whole, or block by block at every step."""
    if not layout.shard.divides_weights or layout.shard_degree == 1:
        return
    sizes = gathered(policy, layout)
    if sizes is None and not whole:
        amount = sharding.zero3_live_parameters(policy.shape, compute_bytes=policy.precision.compute_bytes)
        note = "ZeRO-3 gathers module by module, again at every token"
    elif whole or sizes is None:
        amount = sharding.whole_model(policy.shape, weight_bytes=policy.precision.compute_bytes)
        note = "every weight of the policy gathered on every GPU"
    else:
        amount, note = sharding.fsdp_forward(sizes), "gathered block by block, again at every token"
    yield Row(phase=phase, role=Role.POLICY, item="gathered weights", amount=amount, note=note, reads=("layout.shard",))


# --- scoring -----------------------------------------------------------------------------------------------------


def _score(job: Job, group: str, phase: Phase, resting: list[Row]) -> Iterator[Moment]:
    """One forward without gradient after the other: old log-probs, reference, reward, values."""
    for network in job.networks.values():
        works = State.FORWARD in states_in(job, phase, network.role)
        cached_here = network.placement is Placement.CACHED and phase is Phase.CACHE
        live = network.placement in (Placement.DEVICE, Placement.OFFLOAD, Placement.ADAPTER_OFF)
        if network.group == group and works and (cached_here or (live and phase is not Phase.CACHE)):
            yield from _no_grad(job, network, phase, job.score, resting)


def _no_grad(job: Job, network: Network, phase: Phase, micro_batch: MicroBatch, resting: list[Row]) -> Iterator[Moment]:
    run = no_grad_pass(job, network, micro_batch)
    sizes = gathered(network, job.layouts[network.group])

    def row(item: str, amount: Derived, *reads: str, shrinks: tuple[str, ...] = ("micro-batch", "context")) -> Row:
        return Row(phase=phase, role=network.role, item=item, amount=amount, shrinks_with=shrinks, reads=reads)

    def moment(name: str, *rows: Row) -> Moment:
        return Moment(phase=phase, name=name, acting=network.role, rows=(*resting, *rows))

    def gather(amount: Derived) -> Row:
        return row("gathered weights", amount, "layout.shard", shrinks=("tensor", "expert"))

    trunk = row("activations", activations.no_grad_trunk(network.shape, run=run), "score.micro_batch")
    yield moment("forward", trunk, *([gather(sharding.fsdp_forward(sizes))] if sizes else []))
    if not network.scalar_head:
        made = row("logits", logits.no_grad_logits(network.shape, run=run), "update.loss_implementation")
        hidden = derive(
            "tokens × hidden × compute_bytes",
            tokens=run.tokens,
            hidden=network.shape.hidden,
            compute_bytes=run.compute_bytes,
        )
        last = row("last hidden states", hidden, "score.micro_batch")
        yield moment("logits", last, made, *([gather(sharding.fsdp_logits(sizes))] if sizes else []))


# --- update ------------------------------------------------------------------------------------------------------


def _update(job: Job, group: str, resting: list[Row]) -> Iterator[Moment]:
    training = [network for network in job.networks.values() if network.trainable and network.group == group]
    for network in training:
        yield from update_moments(job, network, _with_other_gradients(job, network, training, resting))
    if not training and resting:
        yield Moment(phase=Phase.UPDATE, name="wait", acting=None, rows=tuple(resting))
    reference = job.networks.get(Role.REFERENCE)
    if reference is None or reference.group != group:
        return
    if State.FORWARD in states_in(job, Phase.UPDATE, Role.REFERENCE) and reference.placement is not Placement.CACHED:
        under = resting if job.kernels.reference_first else [*resting, *_kept_by_policy(job)]
        yield from _no_grad(job, reference, Phase.UPDATE, job.update, under)


def _with_other_gradients(job: Job, network: Network, training: list[Network], resting: list[Row]) -> list[Row]:
    """A joint loss runs the critic's backward first: its whole gradients stand under the policy's peak."""
    if not job.joint_update or network.role is not Role.POLICY:
        return resting
    others = (other for other in training if other is not network)
    return [*resting, *(gradient_row(other, job.layouts[other.group], note="joint loss") for other in others)]


def _kept_by_policy(job: Job) -> Iterator[Row]:
    """What the policy's forward keeps while the reference runs after it (DPO, policy first)."""
    policy = job.networks[Role.POLICY]
    run = update_pass(job, policy)
    terms = activations.trunk(policy.shape, run=run, layer_passes=layer_passes(policy, job.layouts[policy.group]))
    terms["final norm and head input"] = activations.final_norm(policy.shape, run)
    terms["logits"] = logits.kept_logits(policy.shape, run=run)
    for item, amount in terms.items():
        yield Row(
            phase=Phase.UPDATE,
            role=Role.POLICY,
            item=item,
            amount=amount,
            shrinks_with=("micro-batch", "context"),
            note="the policy ran first",
        )


# --- load, sync, save ----------------------------------------------------------------------------------------------


def _load(job: Job, group: str, resting: list[Row]) -> Iterator[Moment]:
    layout = job.layouts[group]
    rows = list(resting)
    if layout.load is Load.DEVICE and layout.gpus > 1:
        for network in _present(job, group):
            whole = sharding.whole_model(
                network.shape, weight_bytes=_loaded_bytes(network), scalar_head=network.scalar_head
            )
            rows.append(
                Row(
                    phase=Phase.LOAD,
                    role=network.role,
                    item="whole model before sharding",
                    amount=whole,
                    reads=("layout.load",),
                )
            )
    if job.engine is not None and job.engine.group == group and job.engine.placement is not EnginePlacement.SHARED:
        rows.extend(_engine_rows(job, job.engine, Phase.LOAD)[:2])
    yield Moment(phase=Phase.LOAD, name="all loaded", acting=None, rows=tuple(rows))


def _present(job: Job, group: str) -> Iterator[Network]:
    for network in job.networks.values():
        own = network.weights_of is None and network.placement in (Placement.DEVICE, Placement.OFFLOAD)
        if own and network.group == group:
            yield network


def _loaded_bytes(network: Network) -> float:
    return (
        network.precision.weight_bytes if network.adapter is None and network.trainable else network.frozen.weight_bytes
    )


def _gather(job: Job, group: str, phase: Phase, resting: list[Row]) -> Iterator[Moment]:
    """SYNC and SAVE: weights leave their shards tensor by tensor, or whole."""
    rows = list(resting)
    sharded = job.layouts[group].shard.divides_weights and job.layouts[group].shard_degree > 1
    policy = job.policy
    if policy.group == group and sharded:
        whole = phase is Phase.SYNC and job.engine is not None and job.engine.whole_model_sync
        make = sharding.whole_model if whole else sharding.streamed_gather
        amount = make(policy.shape, weight_bytes=policy.precision.compute_bytes)
        item = "whole model gathered" if whole else "tensor at work, gathered"
        rows.append(Row(phase=phase, role=policy.role, item=item, amount=amount, reads=("rollout.whole_model_sync",)))
    if rows:
        yield Moment(phase=phase, name="gather", acting=None, rows=tuple(rows))


def host_load_row(job: Job, group: str) -> Iterator[Row]:
    """Host bytes per node while the group's models load."""
    layout = job.layouts[group]
    for network in _present(job, group):
        amount = sharding.host_load(
            network.shape,
            layout,
            weight_bytes=2.0,
            every_rank=layout.load is Load.HOST_EVERY_RANK,
            meta=layout.load in (Load.SHARDS, Load.DEVICE),
        )
        yield Row(
            phase=Phase.LOAD, role=network.role, item="checkpoint on the host", amount=amount, reads=("layout.load",)
        )


def cache_file_row(job: Job) -> Row | None:
    """Disk bytes of DPO's cached log-probs: two fp32 sums a pair, or one fp32 a completion token."""
    reference = job.networks.get(Role.REFERENCE)
    if reference is None or reference.placement is not Placement.CACHED:
        return None
    amount = derive(
        "pairs × 2 × completion_tokens × 4",
        source="one fp32 log-prob per completion token of both sides",
        pairs=job.work.rows,
        completion_tokens=round(job.lengths.completion_mean),
    )
    return Row(phase=Phase.CACHE, role=Role.REFERENCE, item="log-probs on disk", amount=amount, shrinks_with=("rows",))


def engine_weight_bytes(job: Job, engine: Engine) -> int:
    """The engine's own copy of the policy on one GPU."""
    return _engine_weights(job, engine, Phase.GENERATE).bytes
