"""What does an OLMo 2 or 3 config say? Norms on the outputs, q/k norms over the whole width; OLMo 3 adds windows."""

from __future__ import annotations

from headcount.facts.config_file import Fields
from headcount.facts.families.standard import attention, dense_mlp, layer_windows, layers, root, runs
from headcount.facts.model_shape import Block, ModelShape, QkNorm

__all__ = ["read"]

_OLMO3_FULL_EVERY = 4  # three windowed layers, then one that sees all


def read(fields: Fields, *, name: str) -> ModelShape:
    """OLMo 3 has 4,096-token windows where the config leaves `sliding_window` out."""
    hidden = fields.count("hidden_size")
    bias = fields.flag("attention_bias")
    windowed = fields.values.get("model_type") == "olmo3"
    window = fields.count("sliding_window", default=4096) if windowed else None
    every = _OLMO3_FULL_EVERY if windowed else None
    mlp = dense_mlp(fields)
    blocks = [
        Block(
            attention=attention(fields, hidden=hidden, bias=bias, o_bias=bias, qk_norm=QkNorm.FULL_WIDTH, window=seen),
            mlp=mlp,
            post_norm=True,
        )
        for seen in layer_windows(fields, count=layers(fields), window=window, full_every=every)
    ]
    return root(fields, name=name, hidden=hidden, blocks=runs(blocks))
