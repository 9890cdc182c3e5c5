"""What does a Gemma 1 config say? Norms of x·(1 + w), tied embeddings, head_dim of its own."""

from __future__ import annotations

from headcount.facts.config_file import Fields
from headcount.facts.families.standard import attention, dense_mlp, layers, root
from headcount.facts.model_shape import Block, ModelShape, Norm

__all__ = ["read"]


def read(fields: Fields, *, name: str) -> ModelShape:
    """`head_dim` is 256 where the config leaves it out."""
    hidden = fields.count("hidden_size")
    bias = fields.flag("attention_bias")
    block = Block(
        attention=attention(fields, hidden=hidden, bias=bias, o_bias=bias, default_head_dim=256),
        mlp=dense_mlp(fields, act="gelu_pytorch_tanh"),
        norm=Norm.RMS_PLUS_ONE,
    )
    blocks = [(layers(fields), block)]
    return root(fields, name=name, hidden=hidden, blocks=blocks, tied=True, norm=Norm.RMS_PLUS_ONE)
