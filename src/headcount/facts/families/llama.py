"""What does a Llama config say? (also TinyLlama, SmolLM2, Yi, DeepSeek-R1-Distill-Llama, Baichuan's open twins)"""

from __future__ import annotations

from headcount.facts.config_file import Fields
from headcount.facts.families.standard import attention, dense_mlp, layers, root
from headcount.facts.model_shape import Block, ModelShape

__all__ = ["read"]


def read(fields: Fields, *, name: str) -> ModelShape:
    """`attention_bias` covers q, k, v and o; `mlp_bias` all three MLP linears."""
    hidden = fields.count("hidden_size")
    bias = fields.flag("attention_bias")
    block = Block(
        attention=attention(fields, hidden=hidden, bias=bias, o_bias=bias),
        mlp=dense_mlp(fields, bias=fields.flag("mlp_bias")),
    )
    return root(fields, name=name, hidden=hidden, blocks=[(layers(fields), block)])
