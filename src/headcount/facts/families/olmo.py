"""What does an OLMo 1 config say? Llama's linears between LayerNorms that have no parameters."""

from __future__ import annotations

from headcount.facts.config_file import Fields
from headcount.facts.families.standard import attention, dense_mlp, layers, root
from headcount.facts.model_shape import Block, ModelShape, Norm

__all__ = ["read"]


def read(fields: Fields, *, name: str) -> ModelShape:
    """`clip_qkv` changes numbers, not shapes."""
    hidden = fields.count("hidden_size")
    bias = fields.flag("attention_bias")
    block = Block(
        attention=attention(fields, hidden=hidden, bias=bias, o_bias=bias),
        mlp=dense_mlp(fields),
        norm=Norm.LAYER_PLAIN,
    )
    return root(fields, name=name, hidden=hidden, blocks=[(layers(fields), block)], norm=Norm.LAYER_PLAIN)
