"""What does a SmolLM3 config say? Llama with tied embeddings; layers without rotary positions change no bytes."""

from __future__ import annotations

from headcount.facts.config_file import Fields
from headcount.facts.families.standard import attention, dense_mlp, layers, root
from headcount.facts.model_shape import Block, ModelShape

__all__ = ["read"]


def read(fields: Fields, *, name: str) -> ModelShape:
    """`use_sliding_window` is refused: no released SmolLM3 uses it."""
    if fields.flag("use_sliding_window"):
        fields.wrong("use_sliding_window", "is true, which no released SmolLM3 uses and this reader does not know")
    hidden = fields.count("hidden_size")
    bias = fields.flag("attention_bias")
    block = Block(
        attention=attention(fields, hidden=hidden, bias=bias, o_bias=bias),
        mlp=dense_mlp(fields, bias=fields.flag("mlp_bias")),
    )
    return root(fields, name=name, hidden=hidden, blocks=[(layers(fields), block)], tied=True)
