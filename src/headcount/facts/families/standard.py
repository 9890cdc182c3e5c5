"""Which keys do most decoder families share, and how do they become attention, MLP and root?

Families that follow Llama's config (most since 2023) say only what they do otherwise.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import groupby
from typing import Any

from headcount.facts.config_file import Fields, StandIn
from headcount.facts.model_shape import Activation, Attention, Block, DenseMlp, ModelShape, MoeMlp

__all__ = [
    "MIXTRAL_EXPERTS",
    "QWEN_EXPERTS",
    "activation",
    "attention",
    "dense_mlp",
    "experts",
    "layer_windows",
    "layers",
    "root",
    "runs",
]

_ACTIVATIONS = {
    "silu": Activation.SILU,
    "swish": Activation.SILU,
    "swiglu": Activation.SILU,
    "gelu": Activation.GELU,
    "gelu_new": Activation.GELU_PYTHON,
    "gelu_pytorch_tanh": Activation.GELU_TANH,
    "relu": Activation.RELU,
    "relu2": Activation.RELU_SQUARED,
}


# LoRA's names of stacked experts: peft 0.21, utils/transformers_weight_conversion.py, _MOE_TARGET_MODULE_MAPPING
QWEN_EXPERTS = ("gate_proj", "up_proj", "down_proj")
MIXTRAL_EXPERTS = ("w1", "w3", "w2")

_MAX_LAYERS = 10_000  # a loop runs over the layers; the deepest known model has 126


def layers(fields: Fields, *keys: str) -> int:
    """The number of blocks, small enough to loop over."""
    return fields.count(*(keys or ("num_hidden_layers",)), most=_MAX_LAYERS)


def activation(fields: Fields, key: str, *, default: str) -> Activation:
    """The MLP's nonlinearity by transformers' name."""
    name = fields.text(key, default=default)
    if name not in _ACTIVATIONS:
        fields.wrong(key, f"is {name[:40]!r}, whose memory is not known", f"known: {', '.join(_ACTIVATIONS)}")
        return Activation.SILU
    return _ACTIVATIONS[name]


def attention(
    fields: Fields,
    *,
    hidden: int,
    bias: bool = False,
    o_bias: bool = False,
    default_head_dim: int | None = None,
    **more: Any,
) -> Attention:
    """Grouped-query attention; absent: as many kv heads as heads, head_dim of the family or hidden ÷ heads."""
    heads = fields.count("num_attention_heads")
    kv_heads = fields.count("num_key_value_heads", default=heads)
    head_dim = fields.maybe_count("head_dim") or default_head_dim
    if head_dim is None:
        head_dim = fields.divides("num_attention_heads", hidden, heads, of="hidden_size")
    return grouped(fields, heads=heads, kv_heads=kv_heads, head_dim=head_dim, bias=bias, o_bias=o_bias, **more)


def grouped(
    fields: Fields, *, heads: int, kv_heads: int, head_dim: int, bias: bool = False, o_bias: bool = False, **more: Any
) -> Attention:
    """Grouped-query attention from its numbers; heads that do not share evenly are noted as a mistake."""
    if isinstance(heads, StandIn) or isinstance(kv_heads, StandIn):
        kv_heads = heads
    elif heads % kv_heads:
        what = f"is {kv_heads:,}, which does not divide num_attention_heads = {heads:,} (grouped-query attention)"
        fields.wrong("num_key_value_heads", what, "check both in the config.json")
        kv_heads = heads
    biases = {"q_bias": bias, "k_bias": bias, "v_bias": bias, "o_bias": o_bias}
    return Attention(heads=heads, kv_heads=kv_heads, head_dim=head_dim, **biases, **more)


def dense_mlp(fields: Fields, *, bias: bool = False, act: str = "silu", **more: Any) -> DenseMlp:
    """gate·up·down of intermediate_size."""
    return DenseMlp(
        width=fields.count("intermediate_size"),
        bias=bias,
        activation=activation(fields, "hidden_act", default=act),
        **more,
    )


def experts(fields: Fields, *, count_key: str, width_key: str, **more: Any) -> MoeMlp:
    """Routed experts; `num_experts_per_tok` of them run for a token."""
    count = fields.count(count_key)
    active = fields.count("num_experts_per_tok")
    if active > count and not isinstance(count, StandIn):
        fields.wrong("num_experts_per_tok", f"is {active:,}, more than {count_key} = {count:,}", "check both")
    active = min(active, count)
    act = activation(fields, "hidden_act", default="silu")
    more.setdefault("normalised", fields.flag("norm_topk_prob"))
    return MoeMlp(experts=count, active=active, width=fields.count(width_key), activation=act, **more)


def layer_windows(fields: Fields, *, count: int, window: int | None, full_every: int | None) -> list[int | None]:
    """The attention window of each layer: `layer_types` where given, else each `full_every`-th layer sees all."""
    types = fields.texts("layer_types", length=count)
    if types is not None:
        return [window if kind in ("sliding_attention", "chunked_attention") else None for kind in types]
    if full_every is None:
        return [window] * count
    return [None if (layer + 1) % full_every == 0 else window for layer in range(count)]


def runs(blocks: Iterable[Block]) -> tuple[tuple[int, Block], ...]:
    """Run-length code of a list of blocks."""
    return tuple((len(list(same)), block) for block, same in groupby(blocks))


def root(
    fields: Fields,
    *,
    name: str,
    hidden: int,
    blocks: Iterable[tuple[int, Block]],
    tied: bool = False,
    default_vocab: int | None = None,
    default_max_tokens: int | None = None,
    context_keys: tuple[str, ...] = ("max_position_embeddings",),
    **more: Any,
) -> ModelShape:
    """Vocabulary, context and tying; raises every mistake found on the way."""
    vocab = fields.count("vocab_size", default=default_vocab)
    max_tokens = fields.count(*context_keys, default=default_max_tokens)
    tied = fields.flag("tie_word_embeddings", default=tied)
    fields.close()
    family = str(fields.values.get("model_type", ""))
    run = tuple(blocks)
    return ModelShape(
        name=name, family=family, hidden=hidden, blocks=run, vocab=vocab, max_tokens=max_tokens, tied=tied, **more
    )
