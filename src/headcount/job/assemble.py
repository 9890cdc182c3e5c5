"""How do settings become the nouns of a Job: networks, lengths, work, micro-batches, kernels, layouts, engine?"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from math import ceil
from typing import Any, Protocol

from headcount.errors import InputError, Mistake
from headcount.facts.gpu import Gpu, find_gpu
from headcount.job.check import no_effect, relation_mistakes
from headcount.job.data_lengths import data_lengths
from headcount.job.defaults import MICRO_BATCH_SOURCE, MICRO_BATCH_TOKENS
from headcount.job.engine import engine_of
from headcount.job.job import AttentionKernel, Checkpointing, Job, Kernels, Lengths, Loss, MicroBatch, RowLayout, Work
from headcount.job.layout import ContextExchange, Layout, Load, Shard
from headcount.job.networks import contradictions, model_of, networks_of
from headcount.job.settings import Settings
from headcount.units import GIB
from headcount.vocabulary import Algorithm

__all__ = ["assemble", "gpu_of"]


class FlatSpec(Protocol):
    """What assembling reads of a Spec."""

    @property
    def flat(self) -> Mapping[str, Any]: ...
    @property
    def where(self) -> str: ...
    @property
    def folder(self) -> Any: ...
    def replaced(self, path: str, value: object) -> Any: ...
    def build(self, *, gpus: int | None = None) -> Job: ...


_gpu = cache(find_gpu)


def gpu_of(flat: Mapping[str, Any], where: str) -> Gpu:
    """The card of a flat job."""
    try:
        return _gpu(flat["hardware.gpu"])
    except InputError as error:
        raise _located(error, f"{where}: hardware.gpu") from None


def assemble(spec: FlatSpec, gpus: int) -> Job:
    """The complete Job; every contradiction is reported at once."""
    flat, where = spec.flat, spec.where
    algorithm = Algorithm(flat["algorithm"])
    mistakes = [*_lookups(flat, where), *no_effect(flat, algorithm, where)]
    if mistakes:
        raise InputError(mistakes)
    gpu = gpu_of(flat, where)
    settings = _settings(flat, gpus)
    mistakes = contradictions(settings, algorithm, where)
    job = _job(spec, settings, algorithm, gpu, gpus)
    mistakes += relation_mistakes(job, where)
    if mistakes:
        raise InputError(mistakes)
    return job


def _located(error: InputError, where: str) -> InputError:
    """The same mistakes, named by the key that caused them."""
    return type(error)([Mistake(where=where, what=m.what, fix=m.fix) for m in error.mistakes])


def _lookups(flat: Mapping[str, Any], where: str) -> list[Mistake]:
    """Names that no table has."""
    looked = [("hardware.gpu", _gpu)] + [(f"{role}.model", model_of) for role in ("policy", "reference", "critic")]
    mistakes: list[Mistake] = []
    for key, find in looked:
        if key not in flat:
            continue
        try:
            find(flat[key])
        except InputError as error:
            mistakes += [Mistake(where=f"{where}: {key} ({m.where})", what=m.what, fix=m.fix) for m in error.mistakes]
    return mistakes


def _settings(flat: Mapping[str, Any], gpus: int) -> Settings:
    """Recipe settings depend on tuning, algorithm, GPUs and sharding."""
    facts: dict[str, object] = {
        "tuning": flat.get("policy.tuning", "full"),
        "algorithm": flat["algorithm"],
        "many": gpus > 1,
        "tensor": flat.get("layout.tensor", 1) > 1,
        "placement": flat.get("rollout.engine_placement"),
        "shard": flat.get("layout.shard"),
    }
    recipe = flat.get("recipe", "headcount")
    if facts["shard"] is None:
        facts["shard"] = Settings(flat, recipe=recipe, facts=facts).get("layout.shard")
    return Settings(flat, recipe=recipe, facts=facts)


def _job(spec: FlatSpec, settings: Settings, algorithm: Algorithm, gpu: Gpu, gpus: int) -> Job:
    flat = spec.flat
    rewards = list(flat.get("reward", []))
    networks = networks_of(settings, rewards, algorithm, flat.get("layout.roles", {}))
    policy = next(iter(networks.values()))
    known = _data(spec, settings)
    lengths = _lengths(settings, algorithm, known)
    work = _work(settings, algorithm, known)
    layouts = _layouts(settings, flat, gpu, gpus)
    update = _micro_batch(settings, "update", lengths, algorithm)
    engine = None
    if algorithm.online:
        engine, rollout_layout = engine_of(settings, policy.shape, gpu, layouts["train"])
        if rollout_layout is not None:
            layouts["rollout"] = rollout_layout
    return Job(
        name=settings.get("name", f"{algorithm} {policy.shape.name}"),
        algorithm=algorithm,
        networks=networks,
        lengths=lengths,
        work=work,
        update=update,
        score=_micro_batch(settings, "score", lengths, algorithm, beside=update),
        kernels=_kernels(settings, work, layouts["train"], update, algorithm),
        gpu=gpu,
        layouts=layouts,
        engine=engine,
        joint_update=settings.get("update.joint") if algorithm is Algorithm.PPO else False,
        kl_coef=float(settings.get("update.kl_coef")) if algorithm is Algorithm.PPO else 0.0,
        recipe=settings.get("recipe"),
        price_per_gpu_hour=settings.get("cost.price_per_gpu_hour"),
        host_bytes_per_node=_host_bytes(settings),
        sources=settings.sources,
        spec=spec,
    )


def _host_bytes(settings: Settings) -> int | None:
    stated = settings.get("hardware.host_memory_gib")
    return None if stated is None else round(stated * GIB)


def _data(spec: FlatSpec, settings: Settings) -> Mapping[str, Any]:
    """Lengths and rows of the data file, where one is named."""
    for key in ("data.prompts", "data.pairs", "data.rows"):
        if settings.given(key):
            return data_lengths(spec.folder / settings.get(key))
    return {}


def _tokens(value: Any) -> tuple[float, int]:
    """(mean, max) of `512`, `{max = 1024}` or `{mean = 512, max = 1024}`."""
    if isinstance(value, Mapping):
        return float(value.get("mean", value["max"])), int(value["max"])
    return float(value), int(value)


def _lengths(settings: Settings, algorithm: Algorithm, known: Mapping[str, Any]) -> Lengths:
    completion_key = "rollout.completion_tokens" if algorithm.online else "data.completion_tokens"
    if algorithm.online and not settings.given(completion_key) and settings.given("data.completion_tokens"):
        completion_key = "data.completion_tokens"
    prompt = known.get("prompt") if not settings.given("data.prompt_tokens") else None
    completion = known.get("completion") if not settings.given(completion_key) and not algorithm.online else None
    prompt_mean, prompt_max = prompt or _tokens(settings.get("data.prompt_tokens"))
    mean, most = completion or _tokens(settings.get(completion_key))
    return Lengths(prompt_mean=prompt_mean, prompt_max=prompt_max, completion_mean=mean, completion_max=most)


def _work(settings: Settings, algorithm: Algorithm, known: Mapping[str, Any]) -> Work:
    online = algorithm.online
    per_step = int(settings.get("rollout.prompts_per_step" if online else "work.rows_per_step"))
    rows = int(known.get("rows", 0)) if not settings.given("work.rows") else 0
    rows = rows or int(settings.get("work.rows"))
    steps = settings.get("work.steps")
    return Work(
        rows=rows,
        epochs=float(settings.get("work.epochs")) if steps is None else steps * per_step / rows,
        rows_per_step=per_step,
        mini_batch_rows=int(
            settings.get("update.mini_batch_prompts", per_step, "one optimizer step a rollout: on-policy")
        ),
        group_size=int(settings.get("rollout.group_size")) if online else 1,
        passes=int(settings.get("update.passes")) if online else 1,
        reward_retrains=int(settings.get("work.reward_retrains")) if online else 0,
    )


def _micro_batch(
    settings: Settings, section: str, lengths: Lengths, algorithm: Algorithm, *, beside: MicroBatch | None = None
) -> MicroBatch:
    """Stated in sequences or tokens; else about 8,192 tokens; the score pass as the update."""
    row = lengths.row_max
    whole = settings.get("update.logits_on") == "all"
    logit_tokens = row if whole else min(row, lengths.completion_max + 1)
    rows = RowLayout(settings.get("update.row_layout"))
    tokens = settings.get(f"{section}.micro_batch_tokens")
    if tokens is not None:
        if rows is RowLayout.PACKED:
            share = logit_tokens / row
            return MicroBatch(sequences=1, row_tokens=int(tokens), logit_tokens=ceil(tokens * share), rows=rows)
        sequences = max(1, int(tokens) // row)
    elif settings.given(f"{section}.micro_batch_sequences") or beside is None:
        usual = max(1, MICRO_BATCH_TOKENS // row)
        sequences = int(
            settings.get(f"{section}.micro_batch_sequences", _whole_pairs(usual, algorithm), MICRO_BATCH_SOURCE)
        )
    else:
        return beside
    if tokens is not None:
        sequences = _whole_pairs(sequences, algorithm)
    return MicroBatch(sequences=sequences, row_tokens=row, logit_tokens=logit_tokens, rows=rows)


def _whole_pairs(sequences: int, algorithm: Algorithm) -> int:
    return max(2, sequences - sequences % 2) if algorithm.pairs else sequences


def _kernels(settings: Settings, work: Work, layout: Layout, update: MicroBatch, algorithm: Algorithm) -> Kernels:
    sequences = work.mini_batch_rows * work.group_size * (2 if algorithm.pairs else 1)
    several = sequences > update.sequences * max(1, layout.data) and update.rows is not RowLayout.PACKED
    why = "one optimizer step takes several micro-batches" if several else "one micro-batch an optimizer step"

    def flag(name: str) -> bool:
        return bool(settings.get(f"update.{name}", False))

    return Kernels(
        attention=AttentionKernel(settings.get("update.attention")),
        checkpointing=Checkpointing(settings.get("update.gradient_checkpointing")),
        reentrant=flag("checkpoint_reentrant"),
        offload_checkpoints=flag("offload_checkpoints"),
        loss=Loss(settings.get("update.loss_implementation")),
        loss_chunk_tokens=int(settings.get("update.loss_chunk_tokens")),
        fused_norm=flag("fused_norm"),
        fused_mlp=flag("fused_mlp"),
        fused_rope=flag("fused_rope"),
        compiled=flag("compiled"),
        expand_kv=flag("expand_kv"),
        residual_bytes=int(settings.get("update.residual_bytes", 2)),
        float8_linears=flag("float8_linears"),
        optimizer_in_backward=flag("optimizer_in_backward"),
        accumulate=bool(settings.get("update.accumulate", several, why)),
        reference_first=bool(settings.get("update.reference_first")) if algorithm is Algorithm.DPO else True,
    )


def _layouts(settings: Settings, flat: Mapping[str, Any], gpu: Gpu, gpus: int) -> dict[str, Layout]:
    usual = Shard.FSDP2 if gpus > 1 else Shard.NONE
    why = "FSDP2 over all GPUs" if gpus > 1 else "one GPU divides nothing"
    if gpus == 1 and not settings.given("layout.shard"):
        shard = Shard.NONE
    else:
        shard = Shard(settings.get("layout.shard", str(usual), why))
    tensor = int(settings.get("layout.tensor", 1))
    pipeline = int(settings.get("layout.pipeline", 1))
    per_node = int(settings.get("hardware.gpus_per_node", gpu.gpus_per_node, f"as {gpu.name} is sold"))

    def whole(name: str, usual: int = 1) -> int:
        return int(settings.get(f"layout.{name}", usual))

    def flag(name: str, usual: bool = False) -> bool:
        return bool(settings.get(f"layout.{name}", usual))

    train = Layout(
        gpus=gpus,
        gpus_per_node=per_node,
        shard=shard,
        replicate=whole("replicate"),
        reshard_after_forward=flag("reshard_after_forward", True),
        root_split=flag("root_split"),
        tensor=tensor,
        sequence_parallel=flag("sequence_parallel") and (tensor > 1 or settings.given("layout.sequence_parallel")),
        pipeline=pipeline,
        virtual_pipeline=whole("virtual_pipeline"),
        pipeline_micro_batches=whole("pipeline_micro_batches", pipeline),
        context=whole("context"),
        context_exchange=ContextExchange(settings.get("layout.context_exchange", "ring")),
        expert=whole("expert"),
        layer_split=whole("layer_split"),
        offload_parameters=flag("offload_parameters"),
        offload_optimizer=flag("offload_optimizer"),
        load=Load(settings.get("layout.load")),
        offload_between_phases=flag("offload_between_phases"),
    )
    groups = {name: _group(each, per_node) for name, each in flat.get("layout.groups", {}).items()}
    return {"train": train} | groups


def _group(each: Mapping[str, Any], per_node: int) -> Layout:
    enums = {"shard": Shard, "load": Load}
    fields = {key: enums[key](value) if key in enums else value for key, value in each.items()}
    if "shard" not in fields and fields["gpus"] > 1:
        fields["shard"] = Shard.FSDP2
    return Layout(gpus_per_node=per_node, **fields)
