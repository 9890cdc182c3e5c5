"""How do settings become the nouns of a Job: networks, lengths, work, micro-batches, kernels, layouts, engine?"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from math import ceil
from pathlib import Path
from typing import Any, Protocol

from headcount.errors import InputError
from headcount.facts.gpu import Gpu
from headcount.facts.link import Fabric, find_fabric, usual_fabric
from headcount.job.check import relation_mistakes
from headcount.job.data_lengths import DataLengths, completion_quantiles, data_lengths
from headcount.job.defaults import MICRO_BATCH_SOURCE, MICRO_BATCH_TOKENS
from headcount.job.engine import engine_of
from headcount.job.job import (
    AttentionKernel,
    Checkpointing,
    Job,
    Kernels,
    Lengths,
    Loss,
    MicroBatch,
    Origin,
    RowLayout,
    Source,
    Work,
)
from headcount.job.layout import ContextExchange, Layout, Load, Shard
from headcount.job.lookup import gpu_of
from headcount.job.networks import networks_of
from headcount.job.no_effect import no_effect_on
from headcount.job.settings import Settings
from headcount.job.throughput import observed_mistakes, observed_of, throughput_mistakes
from headcount.job.upkeep import money_of, upkeep_of
from headcount.units import GIB
from headcount.vocabulary import Algorithm

__all__ = ["assemble"]


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


def assemble(spec: FlatSpec, gpus: int) -> Job:
    """The complete Job of a checked spec; every relation that cannot hold is reported at once."""
    algorithm = Algorithm(spec.flat["algorithm"])
    job = _job(spec, _settings(spec.flat, gpus), algorithm, gpu_of(spec.flat, spec.where), gpus)
    mistakes = [
        *relation_mistakes(job, spec.where),
        *no_effect_on(job, spec.flat, spec.where),
        *throughput_mistakes(spec.flat, job, spec.where),
        *observed_mistakes(spec.flat, spec.where),
    ]
    if mistakes:
        raise InputError(mistakes)
    return job


def _settings(flat: Mapping[str, Any], gpus: int) -> Settings:
    """Recipe settings depend on algorithm, tuning and GPUs, some also on the sharding and the engine's place."""
    recipe = flat.get("recipe", "headcount")
    facts: dict[str, object] = {
        "tuning": flat.get("policy.tuning", "full"),
        "algorithm": flat["algorithm"],
        "many": gpus > 1,
        "tensor": flat.get("layout.tensor", 1) > 1,
        "placement": None,
        "shard": None,
    }
    first = Settings(flat, recipe=recipe, facts=facts)
    facts["shard"] = first.get("layout.shard")
    if Algorithm(flat["algorithm"]).online:
        shared = first.get("rollout.engine") in ("builtin", "hf")
        facts["placement"] = "shared" if shared else first.get("rollout.engine_placement")
    return Settings(flat, recipe=recipe, facts=facts)


def _job(spec: FlatSpec, settings: Settings, algorithm: Algorithm, gpu: Gpu, gpus: int) -> Job:
    flat = spec.flat
    rewards = list(flat.get("reward", []))
    networks = networks_of(settings, rewards, algorithm, flat.get("layout.roles", {}))
    policy = next(iter(networks.values()))
    known = _data(spec, settings)
    lengths = _with_shape(_lengths(settings, algorithm, known), settings, algorithm, spec.folder)
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
        fabric=_fabric(settings, gpu),
        layouts=layouts,
        engine=engine,
        joint_update=settings.get("update.joint") if algorithm is Algorithm.PPO else False,
        kl_coef=float(settings.get("update.kl_coef")) if algorithm is Algorithm.PPO else 0.0,
        recipe=settings.get("recipe"),
        money=money_of(settings),
        upkeep=upkeep_of(settings, rewards),
        observed=observed_of(flat),
        host_bytes_per_node=_host_bytes(settings),
        sources=settings.sources,
        spec=spec,
    )


def _fabric(settings: Settings, gpu: Gpu) -> Fabric:
    usual = usual_fabric(gpu.architecture)
    return find_fabric(
        settings.get("hardware.fabric", usual.id, f"what {gpu.architecture} hosts are usually sold with")
    )


def _host_bytes(settings: Settings) -> int | None:
    stated = settings.get("hardware.host_memory_gib")
    return None if stated is None else round(stated * GIB)


def _data(spec: FlatSpec, settings: Settings) -> DataLengths | None:
    """Lengths and rows of the data file, where one is named."""
    for key in ("data.prompts", "data.pairs", "data.rows"):
        if settings.given(key):
            return data_lengths(spec.folder / settings.get(key))
    return None


def _tokens(value: Any) -> tuple[float, int]:
    """(mean, max) of `512`, `{max = 1024}` or `{mean = 512, max = 1024}`."""
    if isinstance(value, Mapping):
        return float(value.get("mean", value["max"])), int(value["max"])
    return float(value), int(value)


def _lengths(settings: Settings, algorithm: Algorithm, known: DataLengths | None) -> Lengths:
    completion_key = "rollout.completion_tokens" if algorithm.online else "data.completion_tokens"
    if algorithm.online and settings.given("data.completion_tokens"):
        completion_key = "data.completion_tokens"
    prompt_mean, prompt_max = _of_data(settings, "data.prompt_tokens", known.prompt if known else None)
    own = known.completion if known and not algorithm.online else None
    mean, most = _of_data(settings, completion_key, own)
    return Lengths(prompt_mean=prompt_mean, prompt_max=prompt_max, completion_mean=mean, completion_max=most)


def _with_shape(lengths: Lengths, settings: Settings, algorithm: Algorithm, folder: Path) -> Lengths:
    """How completion lengths spread: as a run's own lengths did, else a log-normal cut at the cap."""
    if not algorithm.online:
        return lengths
    if settings.given("rollout.completion_lengths"):
        drawn = completion_quantiles(folder / settings.get("rollout.completion_lengths"))
        mean, most = sum(drawn) / len(drawn), ceil(max(drawn))
        text = "lengths of the file"
        settings.sources["rollout.completion_tokens"] = Source(
            origin=Origin.GIVEN, text=text, value={"mean": mean, "max": most}
        )
        return replace(lengths, completion_mean=mean, completion_max=most, completion_quantiles=drawn)
    return replace(lengths, completion_sigma=float(settings.get("rollout.completion_sigma")))


def _of_data(settings: Settings, key: str, read: Source | None) -> tuple[float, int]:
    """A length: the file's key, else what the data hold, else the default workload."""
    if settings.given(key) or read is None:
        return _tokens(settings.get(key))
    settings.sources[key] = read
    return _tokens(read.value)


def _work(settings: Settings, algorithm: Algorithm, known: DataLengths | None) -> Work:
    online = algorithm.online
    per_step = _rows_per_step(settings, online=online)
    if known and not settings.given("work.rows"):
        settings.sources["work.rows"] = Source(origin=Origin.GIVEN, text="rows of the data file", value=known.rows)
        rows = known.rows
    else:
        rows = int(settings.get("work.rows"))
    steps = settings.get("work.steps")
    mini = int(settings.get("update.mini_batch_prompts", per_step, "one optimizer step a rollout: on-policy"))
    if not settings.given("update.mini_batch_prompts"):
        mini = min(mini, per_step)  # a framework's default that is larger than this job's whole step
    return Work(
        rows=rows,
        epochs=float(settings.get("work.epochs")) if steps is None else steps * per_step / rows,
        rows_per_step=per_step,
        mini_batch_rows=mini if online else per_step,
        group_size=int(settings.get("rollout.group_size")) if online else 1,
        passes=int(settings.get("update.passes")) if online else 1,
    )


def _rows_per_step(settings: Settings, *, online: bool) -> int:
    """Prompts of one rollout; offline a step is an optimizer step, whichever key says its rows."""
    if online:
        return int(settings.get("rollout.prompts_per_step"))
    mini = "update.mini_batch_prompts"
    return int(settings.get(mini if settings.given(mini) else "work.rows_per_step"))


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


def accumulates(work: Work, layout: Layout, update: MicroBatch, algorithm: Algorithm) -> bool:
    """Does one optimizer step take several micro-batches on a rank?"""
    sequences = work.mini_batch_rows * work.group_size * (2 if algorithm.pairs else 1)
    return sequences > update.sequences * max(1, layout.data) and update.rows is not RowLayout.PACKED


def _kernels(settings: Settings, work: Work, layout: Layout, update: MicroBatch, algorithm: Algorithm) -> Kernels:
    several = accumulates(work, layout, update, algorithm)
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
        compiled=flag("compiled"),
        expand_kv=flag("expand_kv"),
        residual_bytes=int(settings.get("update.residual_bytes", 2)),
        optimizer_in_backward=flag("optimizer_in_backward"),
        native_gelu=flag("native_gelu"),
        experts_weighted_fp32=flag("experts_weighted_fp32"),
        expandable_segments=flag("expandable_segments"),
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
    fields: dict[str, Any] = {key: enums[key](value) if key in enums else value for key, value in each.items()}
    fields |= {key: int(value) for key, value in fields.items() if isinstance(value, float)}
    if "shard" not in fields and fields["gpus"] > 1:
        fields["shard"] = Shard.FSDP2
    return Layout(gpus_per_node=per_node, **fields)
