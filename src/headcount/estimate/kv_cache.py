"""How many bytes does the key-value cache hold, and how many sequences fit in a budget?"""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil

from headcount.estimate.attention_activations import local_heads
from headcount.facts.model_shape import Attention, AttentionKind, ModelShape
from headcount.ledger.derivation import Derived, derive

__all__ = [
    "bytes_per_token", "cache_growth", "cached_tokens", "concurrency_cap", "decode_step", "kv_cache",
    "layer_bytes_per_token", "mean_live_tokens",
]  # fmt: skip

_DECODE_BYTES_PER_LOGIT = {"greedy": 10, "sampling": 14, "top-k": 19}


def layer_bytes_per_token(attention: Attention, *, kv_bytes: float, tensor: int = 1) -> float:
    """GQA: keys and values of this rank's heads. MLA: latent and rotary part, whole on every tensor-parallel rank."""
    if attention.kind is AttentionKind.MLA:
        index = attention.index_head_dim
        return (attention.kv_lora_rank + attention.rope_head_dim + index) * kv_bytes
    _, kv_heads = local_heads(attention, tensor)
    return kv_heads * (attention.head_dim + (attention.value_head_dim or attention.head_dim)) * kv_bytes


def bytes_per_token(shape: ModelShape, *, kv_bytes: float = 2, tensor: int = 1, pipeline: int = 1) -> Derived:
    """All layers of one stage, windows ignored: 2·L·n_kv·d·s (GQA) or L·(kv_lora_rank + rope)·s (MLA)."""
    whole = sum(
        count * layer_bytes_per_token(block.attention, kv_bytes=kv_bytes, tensor=tensor)
        for count, block in shape.blocks
    )
    return derive(
        "layers × bytes_per_layer ÷ pipeline",
        layers=shape.layers,
        bytes_per_layer=whole / shape.layers,
        pipeline=pipeline,
    )


def cached_tokens(attention: Attention, tokens: int) -> int:
    """A sliding window caps what its layer holds."""
    return min(tokens, attention.window) if attention.window else tokens


def kv_cache(
    shape: ModelShape, *, sequences: float, tokens: int, kv_bytes: float = 2, tensor: int = 1, pipeline: int = 1
) -> Derived:
    """The cache of `sequences` rows that are each `tokens` long."""
    per_sequence = sum(
        count
        * cached_tokens(block.attention, tokens)
        * layer_bytes_per_token(block.attention, kv_bytes=kv_bytes, tensor=tensor)
        for count, block in shape.blocks
    )
    return derive(
        "sequences × tokens × layers × bytes_per_token_and_layer ÷ pipeline",
        source="windowed layers hold at most their window",
        sequences=sequences,
        tokens=tokens,
        layers=shape.layers,
        bytes_per_token_and_layer=per_sequence / tokens / shape.layers,
        pipeline=pipeline,
    )


def concurrency_cap(
    shape: ModelShape,
    *,
    budget_bytes: float,
    tokens: int,
    kv_bytes: float = 2,
    tensor: int = 1,
    pipeline: int = 1,
    block_tokens: int = 16,
) -> int:
    """Sequences of `tokens` that a budget holds at once, in whole blocks of the engine's pager."""
    paged = ceil(tokens / block_tokens) * block_tokens
    one = kv_cache(shape, sequences=1, tokens=paged, kv_bytes=kv_bytes, tensor=tensor, pipeline=pipeline).value
    return max(0, int(budget_bytes // one))


def decode_step(shape: ModelShape, *, sequences: int, sampler: str = "sampling") -> Derived:
    """One step's logits: last and new, in both dtypes: 10 (greedy), 14 (sampling), 19 (top-k) bytes an element."""
    return derive(
        "sequences × vocabulary × bytes_per_logit",
        source="measured on transformers 5.24 generate",
        sequences=sequences,
        vocabulary=shape.vocab,
        bytes_per_logit=_DECODE_BYTES_PER_LOGIT[sampler],
    )


def cache_growth(shape: ModelShape, *, sequences: int, tokens: int, kv_bytes: float = 2, tensor: int = 1) -> Derived:
    """A dynamic cache grows by concatenation, one tensor at a time: the keys of one layer once more."""
    largest = max(layer_bytes_per_token(block.attention, kv_bytes=kv_bytes, tensor=tensor) for _, block in shape.blocks)
    return derive(
        "sequences × tokens × layer_bytes ÷ 2",
        source="measured on transformers 5.24 generate",
        sequences=sequences,
        tokens=tokens,
        layer_bytes=largest,
    )


def mean_live_tokens(lengths: Sequence[float]) -> float:
    """Mean context of sequences that grow steadily to these lengths."""
    return sum(lengths) / (2 * len(lengths))
