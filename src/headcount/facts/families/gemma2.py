"""What does a Gemma 2 config say? Four norms a block, every other layer a window, softcapped scores and logits."""

from __future__ import annotations

from headcount.facts.config_file import Fields
from headcount.facts.families.standard import activation, attention, layer_windows, layers, root, runs
from headcount.facts.model_shape import Block, DenseMlp, ModelShape, Norm

__all__ = ["read"]


def read(fields: Fields, *, name: str) -> ModelShape:
    """Even layers see `sliding_window` tokens, odd ones all."""
    hidden = fields.count("hidden_size")
    bias = fields.flag("attention_bias")
    softcap = fields.values.get("attn_logit_softcapping", 50.0) is not None
    act = activation(fields, "hidden_activation", default="gelu_pytorch_tanh")
    mlp = DenseMlp(width=fields.count("intermediate_size"), activation=act)
    window = fields.count("sliding_window", default=4096)
    blocks = [
        Block(
            attention=attention(
                fields, hidden=hidden, bias=bias, o_bias=bias, default_head_dim=256, softcap=softcap, window=seen
            ),
            mlp=mlp,
            norm=Norm.RMS_PLUS_ONE,
            norms=4,
        )
        for seen in layer_windows(fields, count=layers(fields), window=window, full_every=2)
    ]
    return root(
        fields,
        name=name,
        hidden=hidden,
        blocks=runs(blocks),
        tied=True,
        norm=Norm.RMS_PLUS_ONE,
        logit_softcap=fields.values.get("final_logit_softcapping", 30.0) is not None,
    )
