"""What does a Qwen3 config say? Explicit head_dim, a norm on each query and key head, no biases by default."""

from __future__ import annotations

from headcount.facts.config_file import Fields
from headcount.facts.families.qwen2 import windows
from headcount.facts.families.standard import attention, dense_mlp, layers, root, runs
from headcount.facts.model_shape import Attention, Block, ModelShape, QkNorm

__all__ = ["qwen3_attention", "read"]


def qwen3_attention(fields: Fields, *, hidden: int, window: int | None, default_head_dim: int | None) -> Attention:
    """Qwen3's attention; the dense family's head_dim is 128 where the config leaves it out."""
    bias = fields.flag("attention_bias")
    return attention(
        fields,
        hidden=hidden,
        bias=bias,
        o_bias=bias,
        qk_norm=QkNorm.PER_HEAD,
        window=window,
        default_head_dim=default_head_dim,
    )


def read(fields: Fields, *, name: str) -> ModelShape:
    """Dense Qwen3."""
    hidden = fields.count("hidden_size")
    mlp = dense_mlp(fields)
    blocks = [
        Block(attention=qwen3_attention(fields, hidden=hidden, window=window, default_head_dim=128), mlp=mlp)
        for window in windows(fields, layers(fields))
    ]
    return root(fields, name=name, hidden=hidden, blocks=runs(blocks))
