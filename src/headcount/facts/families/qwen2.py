"""What does a Qwen2 or Qwen2.5 config say? Llama with biases on q, k, v and a window on the later layers."""

from __future__ import annotations

from headcount.facts.config_file import Fields
from headcount.facts.families.standard import attention, dense_mlp, layers, root, runs
from headcount.facts.model_shape import Block, ModelShape

__all__ = ["read", "windows"]


def read(fields: Fields, *, name: str) -> ModelShape:
    """`sliding_window` counts only with `use_sliding_window`."""
    hidden = fields.count("hidden_size")
    mlp = dense_mlp(fields)
    blocks = [
        Block(attention=attention(fields, hidden=hidden, bias=True, window=window), mlp=mlp)
        for window in windows(fields, layers(fields))
    ]
    return root(fields, name=name, hidden=hidden, blocks=runs(blocks))


def windows(fields: Fields, count: int) -> list[int | None]:
    """Layers from `max_window_layers` on see a window, where the model uses one at all."""
    if not fields.flag("use_sliding_window"):
        return [None] * count
    window = fields.count("sliding_window", default=4096)
    types = fields.texts("layer_types", length=count)
    if types is not None:
        return [window if kind == "sliding_attention" else None for kind in types]
    first = fields.count("max_window_layers", default=28, least=0)
    return [window if layer >= first else None for layer in range(count)]
