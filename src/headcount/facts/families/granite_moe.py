"""What does a Granite-MoE config say? (also PowerMoE) Llama's attention and experts in every block."""

from __future__ import annotations

from dataclasses import replace

from headcount.facts.config_file import Fields
from headcount.facts.families.standard import attention, experts, layers, root
from headcount.facts.model_shape import Block, ModelShape

__all__ = ["read"]


def read(fields: Fields, *, name: str) -> ModelShape:
    """Experts are as wide as `intermediate_size`."""
    hidden = fields.count("hidden_size")
    bias = fields.flag("attention_bias")
    block = Block(
        attention=attention(fields, hidden=hidden, bias=bias, o_bias=bias),
        mlp=experts(fields, count_key="num_local_experts", width_key="intermediate_size"),
    )
    shape = root(fields, name=name, hidden=hidden, blocks=[(layers(fields), block)])
    return replace(shape, embed_scaled=True)
