"""What does a StarCoder2 config say? Grouped queries, biases everywhere, LayerNorm, an MLP of two linears."""

from __future__ import annotations

from headcount.facts.config_file import Fields
from headcount.facts.families.standard import activation, attention, layers, root
from headcount.facts.model_shape import Block, DenseMlp, ModelShape, Norm

__all__ = ["read"]


def read(fields: Fields, *, name: str) -> ModelShape:
    """`use_bias` covers attention and MLP; the norms have theirs in any case."""
    hidden = fields.count("hidden_size")
    bias = fields.flag("use_bias", default=True)
    mlp = DenseMlp(
        width=fields.count("intermediate_size"),
        gated=False,
        bias=bias,
        activation=activation(fields, "hidden_act", default="gelu_pytorch_tanh"),
        up_name="c_fc",
        down_name="c_proj",
    )
    block = Block(
        attention=attention(fields, hidden=hidden, bias=bias, o_bias=bias, window=fields.maybe_count("sliding_window")),
        mlp=mlp,
        norm=Norm.LAYER,
        norm_bias=True,
    )
    return root(
        fields,
        name=name,
        hidden=hidden,
        blocks=[(layers(fields), block)],
        tied=True,
        norm=Norm.LAYER,
        norm_bias=True,
    )
