"""What does a GPT-NeoX or Pythia config say? Parallel attention and MLP, fused qkv, biases, LayerNorm, untied head."""

from __future__ import annotations

from headcount.facts.config_file import Fields
from headcount.facts.families.standard import activation, attention, layers, root
from headcount.facts.model_shape import Block, DenseMlp, ModelShape, Norm

__all__ = ["read"]


def read(fields: Fields, *, name: str) -> ModelShape:
    """`use_parallel_residual` is true for all but a few (stablelm-alpha has it, too)."""
    hidden = fields.count("hidden_size")
    bias = fields.flag("attention_bias", default=True)
    mlp = DenseMlp(
        width=fields.count("intermediate_size"),
        gated=False,
        bias=True,
        activation=activation(fields, "hidden_act", default="gelu"),
        up_name="dense_h_to_4h",
        down_name="dense_4h_to_h",
    )
    block = Block(
        attention=attention(
            fields,
            hidden=hidden,
            bias=bias,
            o_bias=bias,
            fused_qkv=True,
            joined_rotary=True,
            qkv_name="query_key_value",
            o_name="dense",
        ),
        mlp=mlp,
        norm=Norm.LAYER,
        norm_bias=True,
        parallel=fields.flag("use_parallel_residual", default=True),
    )
    return root(
        fields,
        name=name,
        hidden=hidden,
        blocks=[(layers(fields), block)],
        norm=Norm.LAYER,
        norm_bias=True,
        embed_name="embed_in",
    )
