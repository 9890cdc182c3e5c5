"""How is a row's work spread over GPUs, in the job file's words?"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from headcount.measure.mapping.evidence import Case, mapping_in
from headcount.measure.mapping.words import text_of

__all__ = ["MEGATRON", "Spread", "spread_of"]

MEGATRON = ("megatron", "ms-swift-megatron", "nemo-aligner", "nemo-rl-megatron", "slime")
_HALF_A_CARD = 40e9
_UNSHARDED = ("", "hf-trainer", "trl", "ms-swift", "llama-factory", "axolotl", "unsloth")


@dataclass(frozen=True, kw_only=True, slots=True)
class Spread:
    """`layout` holds the keys of the job file's [layout]; `assumed` what the row leaves open."""

    gpus: int
    layout: Mapping[str, Any]
    ulysses: int = 1  # ranks that hold one micro-batch together
    assumed: tuple[str, ...] = ()


def spread_of(case: Case, *, recipe: str, gpus: int) -> Spread:
    """Read `parallelism` for `gpus` training GPUs."""
    fields = mapping_in(case.fields, "parallelism")
    layout: dict[str, Any] = {}
    assumed: list[str] = []
    degrees = {key: _degree(fields, key) for key in ("tp", "pp", "cp", "ep", "sp")}
    for key, name in (("tp", "tensor"), ("pp", "pipeline"), ("cp", "context"), ("ep", "expert")):
        if degrees[key] > 1:
            layout[name] = degrees[key]
    ulysses = _sequence_parallel(fields, layout, degrees, case)
    if fields.get("layers_split"):
        layout["layer_split"] = gpus
    shard = _shard(fields, recipe=recipe, gpus=gpus, layout=layout)
    if shard is not None:
        layout["shard"] = shard
    layout |= _offload(text_of(fields.get("offload")))
    text = text_of(fields.get("fsdp"))
    if re.search(r"no reshard|without reshard|shard_grad_op|reshard_after_forward[= ]+false", text):
        layout["reshard_after_forward"] = False
    replicate = re.search(r"(?:hsdp|hybrid)\D*(\d+)", text)
    if replicate:
        layout["replicate"] = max(1, gpus // int(replicate[1]))
    if recipe in MEGATRON and gpus > 1 and not any(fields.get(key) for key in ("tp", "pp", "cp", "ep")):
        layout |= _megatron_layout(case, gpus)
        assumed.append("layout.tensor and layout.pipeline: not stated; the first that hold the states")
    if degrees["pp"] > 1:
        data = gpus // (degrees["tp"] * degrees["pp"] * degrees["cp"])
        layout |= _pipeline(case, recipe=recipe, pipeline=degrees["pp"], data=data)
    return Spread(gpus=gpus, layout=layout, ulysses=ulysses, assumed=tuple(assumed))


def _degree(fields: Mapping[str, Any], key: str) -> int:
    value = fields.get(key)
    if isinstance(value, bool):
        return 1
    if isinstance(value, (int, float)) and value >= 1:
        return int(value)
    found = re.search(r"\d+", text_of(value))
    return max(1, int(found[0])) if found else 1


def _sequence_parallel(
    fields: Mapping[str, Any], layout: dict[str, Any], degrees: Mapping[str, int], case: Case
) -> int:
    """`sp` true rides on tensor parallel; a number without tensor parallel is Ulysses, a context exchange."""
    if degrees["cp"] > 1:
        text = f"{text_of(fields.get('cp'))} {text_of(case.fields.get('attention'))}"
        layout["context_exchange"] = "ring" if "ring" in text else "ulysses" if "ulysses" in text else "all-gather"
    if degrees["tp"] > 1:
        layout["sequence_parallel"] = fields.get("sp") is not False
        return 1
    if degrees["sp"] > 1:
        layout["context"] = degrees["sp"]
        layout["context_exchange"] = "ulysses"
    return degrees["sp"]


def _shard(fields: Mapping[str, Any], *, recipe: str, gpus: int, layout: Mapping[str, Any]) -> str | None:
    stage = fields.get("zero_stage")
    if isinstance(stage, (int, float)) and not isinstance(stage, bool):
        return {0: "ddp", 1: "zero-1", 2: "zero-2", 3: "zero-3"}.get(int(stage))
    text = text_of(fields.get("fsdp"))
    if text:
        if re.search(r"zero-?3", text) and "fsdp" not in text:
            return "zero-3"
        if "shard_grad_op" in text:
            return "zero-2"
        return "fsdp2" if "fsdp2" in text or recipe in ("torchtitan", "prime-rl") else "fsdp1"
    if gpus == 1 or "layer_split" in layout:
        return "none"
    if recipe in MEGATRON or layout.get("tensor", 1) > 1:
        return "zero-1"  # Megatron's distributed optimizer
    # A bare number of data-parallel ranks is plain data parallel in libraries that shard only when told to.
    return "ddp" if recipe in _UNSHARDED and _degree(fields, "dp") > 1 else None


def _megatron_layout(case: Case, gpus: int) -> dict[str, Any]:
    """Tensor ranks in one node, then pipeline stages until 18 bytes a parameter take half of an 80 GB card."""
    size = case.fields.get("params_b")
    states = 18e9 * float(size) if isinstance(size, (int, float)) and not isinstance(size, bool) else 0.0
    tensor = pipeline = 1
    while tensor < min(8, gpus) and states / tensor > _HALF_A_CARD:
        tensor *= 2
    while tensor * pipeline * 2 <= gpus and pipeline < 16 and states / (tensor * pipeline) > _HALF_A_CARD:
        pipeline *= 2
    stated = {"tensor": tensor, "sequence_parallel": tensor > 1, "pipeline": pipeline}
    return {key: value for key, value in stated.items() if value is not False and value != 1}


def _offload(text: str) -> dict[str, bool]:
    """`params+optimizer CPU`, `optimizer CPU`, `… between phases`, `zero3_offload`."""
    if not text or text in ("none", "no", "false"):
        return {}
    if re.search(r"between phases|swap", text):
        return {"offload_between_phases": True}
    parameters = bool(re.search(r"param|model|weights|zero3_offload|hybrid engine", text))
    return {"offload_optimizer": True} | ({"offload_parameters": True} if parameters else {})


def _pipeline(case: Case, *, recipe: str, pipeline: int, data: int) -> dict[str, Any]:
    """Micro-batches of one flush. torchtitan cuts its local batch into as many as there are stages."""
    batch = mapping_in(case.fields, "batch")
    result: dict[str, Any] = {"virtual_pipeline": 2} if "interleaved" in text_of(case.fields.get("notes")) else {}
    if recipe == "torchtitan":
        return result | {"pipeline_micro_batches": pipeline}
    micro, whole = batch.get("micro_batch_per_gpu"), batch.get("global_batch")
    if isinstance(micro, int) and isinstance(whole, int) and micro > 0:
        result["pipeline_micro_batches"] = max(1, whole // (micro * max(1, data)))
    return result
