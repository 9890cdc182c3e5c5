"""What of a row describes the trained network: weights, adapters, precision, optimizer?"""

from __future__ import annotations

from typing import Any

from headcount.facts.model_shape import DenseMlp, ModelShape
from headcount.facts.models import find_model
from headcount.facts.recipe import settings_for
from headcount.job.check import module_names
from headcount.measure.mapping.evidence import Case
from headcount.measure.mapping.parallel import MEGATRON
from headcount.measure.mapping.words import Method, optimizer_of, precision_of, stated, text_of

__all__ = ["policy_of"]

_DEEPSPEED = ("zero-1", "zero-2", "zero-3")


def policy_of(case: Case, *, method: Method, recipe: str, model: str, shard: str | None) -> dict[str, Any]:
    """The keys of [policy]; None where the recipe decides."""
    kind = precision_of(case.fields.get("precision")) or _in_notes(case)
    adapter = None if method.tuning == "full" else _adapter(method, model)
    return stated(
        {
            "model": model,
            "tuning": method.tuning,
            "precision": _policy(kind, recipe=recipe, shard=shard, method=method),
            "optimizer": optimizer_of(case.fields.get("optimizer")),
            "base_precision": _base(case, method, kind, recipe),
            "adapter": adapter,
        }
    )


def _adapter(method: Method, model: str) -> dict[str, Any] | None:
    extra = ["embed_tokens", "lm_head"] if method.train_ends else None
    targets = _as_called(method.targets, find_model(model)) or None
    return stated({"rank": method.rank, "targets": targets, "extra_trained": extra}) or None


def _as_called(targets: tuple[str, ...], shape: ModelShape) -> list[str]:
    """Sources say q, k, v, o of any model; a family with one projection for three, or other names, means these."""
    known = module_names(shape)
    attention, mlp = shape.block(0).attention, shape.block(0).mlp
    fused = attention.qkv_name if attention.fused_qkv else ""
    names = {"q_proj": fused or attention.q_name, "k_proj": fused or attention.k_name}
    names |= {"v_proj": fused or attention.v_name, "o_proj": attention.o_name}
    if isinstance(mlp, DenseMlp):
        up = mlp.gate_up_name if mlp.fused_gate_up else mlp.up_name
        names |= {"gate_proj": up if mlp.fused_gate_up else mlp.gate_name, "up_proj": up, "down_proj": mlp.down_name}
    meant = (target if target in known else names.get(target, target) for target in targets)
    return list(dict.fromkeys(meant))


def _in_notes(case: Case) -> str | None:
    return precision_of(case.fields.get("notes")) if "optimizer state" in text_of(case.fields.get("notes")) else None


def _policy(kind: str | None, *, recipe: str, shard: str | None, method: Method) -> str | None:
    """The precision preset: what the text states, in the form that the sharding library gives it."""
    if kind is None or method.tuning != "full":
        return None
    if kind == "master-32":
        if recipe in MEGATRON:
            return "megatron-18"
        if shard in _DEEPSPEED:
            return "zero-16"
        if shard is None:
            return None  # the recipe shards, and knows its own masters
        return "fsdp-mixed-16" if shard.startswith("fsdp") else "autocast-16"
    return {"pure-16": "bf16-pure-8", "direct-16": "bf16-direct-12", "full-32": "fp32-16"}[kind]


def _base(case: Case, method: Method, kind: str | None, recipe: str) -> str | None:
    """The frozen base's format: quantised ones by name, fp32 where the text keeps masters of everything."""
    if method.tuning == "qlora":
        named = {"gptq": "gptq-int4", "awq": "gptq-int4", "int8": "int8"}.get(method.base or "")
        known = "policy.base_precision" in settings_for(recipe, {"tuning": "qlora"}) if recipe else False
        return named or (None if known else "nf4")
    if method.tuning == "lora" and (kind == "full-32" or "fp32 master" in text_of(case.fields.get("precision"))):
        return "fp32"
    return None
