"""What do a row's free-text settings mean: method, precision, optimizer, checkpointing, attention, kernels?

Every reader takes text as people write it and returns what the text *states*; None means that it states nothing, and
then the recipe decides.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

__all__ = [
    "Method", "Notes", "attention_of", "checkpointing_of", "method_of", "notes_of", "optimizer_of",
    "precision_of", "stated", "text_of",
]  # fmt: skip

_RANK = re.compile(r"\br(?:ank)?\s*[=:]?\s*(\d+)")
_TARGETS = re.compile(r"lora on ([a-z_0-9, ]+)|\(([^)]*)\)", re.IGNORECASE)
_LETTERS = {
    **{letter: (f"{letter}_proj",) for letter in ("q", "k", "v", "o", "gate", "up", "down")},
    "mlp": ("gate_proj", "up_proj", "down_proj"),
    "attention": ("q_proj", "k_proj", "v_proj", "o_proj"),
}
_ALL_LINEAR = re.compile(r"all[- _]linear|linear layers|all layers|all modules")


def text_of(value: object) -> str:
    """Any field as lower-case text; lists are joined, None is empty."""
    if value is None:
        return ""
    if isinstance(value, (list, tuple)):
        return ", ".join(text_of(part) for part in value)
    if isinstance(value, Mapping):
        return ", ".join(f"{key} {text_of(part)}" for key, part in value.items())
    return str(value).lower()


@dataclass(frozen=True, kw_only=True, slots=True)
class Method:
    """How the policy is tuned. `targets` is empty where the text names none."""

    tuning: str  # full | lora | qlora
    rank: int | None = None
    targets: tuple[str, ...] = ()
    train_ends: bool = False  # embedding and output layer train as well
    base: str | None = None  # nf4 | gptq | int8 …


def method_of(method: object, *, notes: str = "", precision: str = "") -> Method | None:
    """`lora r=16 (q,v)`, `qlora r=64 (int4 GPTQ base)`, `full` …; None when the method is no training at all."""
    text = text_of(method)
    if "inference" in text or "decode" in text:
        return None
    quantised = bool(re.search(r"qlora|[48][- ]?bit|int[48]|nf4|gptq|bnb", text))
    if text.startswith("full") or not re.search(r"lora|adapter|peft", text):
        return Method(tuning="full")
    rank = _RANK.search(text)
    return Method(
        tuning="qlora" if quantised else "lora",
        rank=int(rank[1]) if rank else None,
        targets=_targets(text, notes.lower()),
        train_ends=bool(re.search(r"embedding|embed_tokens|lm_head|output layer", text)),
        base=_base(f"{text} {precision.lower()}") if quantised else None,
    )


def _base(text: str) -> str:
    for word in ("gptq", "awq"):
        if word in text:
            return word
    return "int8" if re.search(r"int8|8[- ]?bit", text) else "nf4"


def _targets(method: str, notes: str) -> tuple[str, ...]:
    if _ALL_LINEAR.search(method) or _ALL_LINEAR.search(notes):
        return ("all-linear",)
    for text in (method, notes):
        for found in _TARGETS.finditer(text):
            named = _modules(found[1] or found[2])
            if named:
                return named
    return ()


def _modules(listed: str) -> tuple[str, ...]:
    """`q,v` → (q_proj, v_proj); names with an underscore are taken as they are; anything else is no list."""
    words = [word for word in re.split(r"[,/ +&]+|\band\b", listed.strip(" .")) if word]
    if not words or not all(word in _LETTERS or re.fullmatch(r"[a-z0-9]+_[a-z0-9_]+", word) for word in words):
        return ()
    return tuple(dict.fromkeys(module for word in words for module in _LETTERS.get(word, (word,))))


def precision_of(precision: object) -> str | None:
    """The family of model state that a text states: pure-16, direct-16, master-32, full-32; None of a bare `bf16`."""
    text = text_of(precision)
    if re.search(
        r"pure (bf16|fp16|16)|(bf16|fp16)[- ]true|throughout|weights(, gradients)? and (optimizer|adam)|no fp32 master",
        text,
    ):
        return "pure-16"
    if re.search(r"(bf16|fp16) weights, fp32 moments", text):
        return "direct-16"
    if re.search(
        r"fp32 (params|master|weights|states|optim)|with fp32|upcast to fp32|mixed|master|float32 param", text
    ):
        return "master-32"
    if re.fullmatch(r"\W*(fp32|float32|32[- ]bit|full precision)\W*", text):
        return "full-32"
    return None


def optimizer_of(optimizer: object) -> str | None:
    """The optimizer's kind as the job file names it; None when the text names only Adam(W), which recipes refine."""
    text = text_of(optimizer)
    if not text:
        return None
    if re.search(r"8[- ]?bit", text):
        return "paged-adamw-8bit" if "paged" in text else "adamw-8bit"
    if re.search(r"4[- ]?bit", text):
        return "adamw-4bit"
    for word in ("adafactor", "lion", "muon", "sgd"):
        if word in text:
            return word
    if "paged" in text:
        return "paged-adamw"
    if re.search(r"\(torch\)|adamw_torch\b", text):
        return "adamw-foreach"  # torch picks foreach on CUDA unless fused is asked for
    if re.search(r"fused", text) and "distributed" not in text:
        return "adamw-fused"
    return "adamw-foreach" if "foreach" in text else None


def checkpointing_of(value: object) -> tuple[str | None, bool]:
    """(none | selective | selective-attention | full, offloaded to the host)."""
    if isinstance(value, bool):
        return ("full" if value else "none"), False
    text = text_of(value)
    if not text:
        return None, False
    offloaded = "offload" in text
    if re.search(r"selective|\bsac\b|per[- ]op", text):
        return ("selective-attention" if "attention" in text or "core" in text else "selective"), offloaded
    if re.search(r"^(none|no|off|false|disabled)\b", text):
        return "none", False
    return "full", offloaded


def attention_of(value: object) -> str | None:
    """eager | sdpa | flash."""
    text = text_of(value)
    if not text:
        return None
    if re.search(r"no flash|without flash", text):
        return "sdpa" if "sdpa" in text else "eager"
    if re.search(r"flash|\bfa[234]?\b|fa[234]|ring|xformers|unsloth|te\b|transformer engine|cudnn", text):
        return "flash"
    if "sdpa" in text:
        return "sdpa"
    return "eager" if re.search(r"eager|math|standard|vanilla", text) else None


@dataclass(frozen=True, kw_only=True, slots=True)
class Notes:
    """Kernel choices that sources only write down in prose."""

    loss: str | None = None
    fused_norm: bool | None = None
    fused_mlp: bool | None = None
    compiled: bool | None = None
    optimizer_in_backward: bool = False
    offload_checkpoints: bool = False


# torchtune's README adds one optimisation a row; a row of that ladder has all that came before it.
_LADDER = (
    "packed",
    "compile",
    "chunked cross-entropy",
    "activation checkpointing",
    "fused into backward",
    "activation offloading",
    "8-bit adam",
    "lora",
)


def notes_of(notes: object, *, optimizer: object = None, precision: object = None) -> Notes:
    """What prose says about kernels: Liger, fused or chunked losses, torch.compile, optimizer in backward."""
    text = _with_ladder(text_of(notes))
    liger = bool(re.search(r"\bliger\b", text)) and not re.search(r"(no|without|not using) liger", text)
    fused_kernels = bool(re.search(r"fused (rope/)?rmsnorm|fused[^.]*norm", text))
    compiled = None
    if re.search(r"(no|without) (torch\.)?compil", text):
        compiled = False
    elif re.search(r"torch\.compile|\bcompile[d]?\b", text):
        compiled = True
    return Notes(
        loss=_loss(text, liger=liger),
        fused_norm=True if liger or fused_kernels else None,
        fused_mlp=True if liger and not fused_kernels else None,
        compiled=compiled,
        optimizer_in_backward="in backward" in text_of(optimizer)
        or bool(re.search(r"in backward|into backward", text)),
        offload_checkpoints="activation offloading" in text,
    )


def _loss(text: str, *, liger: bool) -> str | None:
    if liger or re.search(r"fused[- ]linear cross|logits (are )?(not|never) materiali[sz]ed|cut cross", text):
        return "fused-linear"
    if re.search(r"chunked (lm head|nll|cross|ce\b|loss)|no full logits|full logits are never", text):
        return "chunked"
    return "fused" if re.search(r"fused[^.]*cross-entropy|cross-entropy kernels", text) else None


def _with_ladder(text: str) -> str:
    if "cumulative ladder" not in text:
        return text
    reached = max((at for at, step in enumerate(_LADDER) if step in text), default=-1)
    return " ".join((text, *_LADDER[: reached + 1])) if reached >= 0 else text


def stated(settings: Mapping[str, Any]) -> dict[str, Any]:
    """The settings that are stated: those that are not None."""
    return {key: value for key, value in settings.items() if value is not None}
