"""What does a Nemotron-4 or Minitron config say? LayerNorms of x·(1 + w), an MLP of two linears with squared ReLU."""

from __future__ import annotations

from headcount.facts.config_file import Fields
from headcount.facts.families.standard import attention, dense_mlp, layers, root
from headcount.facts.model_shape import Block, ModelShape, Norm

__all__ = ["read"]


def read(fields: Fields, *, name: str) -> ModelShape:
    """`attention_bias` covers q, k, v and o."""
    hidden = fields.count("hidden_size")
    bias = fields.flag("attention_bias")
    block = Block(
        attention=attention(fields, hidden=hidden, bias=bias, o_bias=bias),
        mlp=dense_mlp(fields, bias=fields.flag("mlp_bias"), act="relu2", gated=False),
        norm=Norm.LAYER,
        norm_bias=True,
    )
    blocks = [(layers(fields), block)]
    return root(fields, name=name, hidden=hidden, blocks=blocks, norm=Norm.LAYER, norm_bias=True)
