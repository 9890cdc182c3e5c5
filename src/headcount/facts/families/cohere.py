"""What does a Cohere (Command R, Aya) config say? One LayerNorm without bias, parallel blocks, tied embeddings."""

from __future__ import annotations

from headcount.facts.config_file import Fields
from headcount.facts.families.standard import attention, dense_mlp, layer_windows, layers, root, runs
from headcount.facts.model_shape import Block, ModelShape, Norm, QkNorm

__all__ = ["read"]

_COHERE2_FULL_EVERY = 4  # three windowed layers, then one that sees all


def read(fields: Fields, *, name: str) -> ModelShape:
    """Command R+ has q/k norms; Command R7B (`cohere2`) has windows."""
    hidden = fields.count("hidden_size")
    bias = fields.flag("attention_bias")
    windowed = fields.values.get("model_type") == "cohere2"
    window = fields.count("sliding_window", default=4096) if windowed else None
    every = fields.count("sliding_window_pattern", default=_COHERE2_FULL_EVERY) if windowed else None
    qk_norm = QkNorm.FULL_WIDTH if fields.flag("use_qk_norm") else QkNorm.NONE
    mlp = dense_mlp(fields)
    blocks = [
        Block(
            attention=attention(fields, hidden=hidden, bias=bias, o_bias=bias, qk_norm=qk_norm, window=seen),
            mlp=mlp,
            norm=Norm.LAYER,
            norms=1,
            parallel=True,
        )
        for seen in layer_windows(fields, count=layers(fields), window=window, full_every=every)
    ]
    return root(fields, name=name, hidden=hidden, blocks=runs(blocks), tied=True, norm=Norm.LAYER)
