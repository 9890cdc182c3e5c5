"""What does a Mistral config say? Llama without biases, with an optional window on every layer."""

from __future__ import annotations

from headcount.facts.config_file import Fields
from headcount.facts.families.standard import attention, dense_mlp, layers, root
from headcount.facts.model_shape import Block, ModelShape

__all__ = ["read"]


def read(fields: Fields, *, name: str) -> ModelShape:
    """`sliding_window` is null from v0.2 on."""
    hidden = fields.count("hidden_size")
    block = Block(
        attention=attention(fields, hidden=hidden, window=fields.maybe_count("sliding_window")),
        mlp=dense_mlp(fields),
    )
    return root(fields, name=name, hidden=hidden, blocks=[(layers(fields), block)])
