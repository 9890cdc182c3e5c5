"""What does a GPT-BigCode (StarCoder 1, SantaCoder) config say? GPT-2 with one key head for all queries."""

from __future__ import annotations

from headcount.facts.config_file import Fields
from headcount.facts.families.standard import activation, grouped, layers, root
from headcount.facts.model_shape import Block, DenseMlp, ModelShape, Norm

__all__ = ["read"]


def read(fields: Fields, *, name: str) -> ModelShape:
    """`multi_query` false gives as many key heads as query heads."""
    hidden = fields.count("n_embd", "hidden_size")
    heads = fields.count("n_head", "num_attention_heads")
    attention = grouped(
        fields,
        heads=heads,
        kv_heads=1 if fields.flag("multi_query", default=True) else heads,
        head_dim=fields.divides("n_head", hidden, heads, of="n_embd"),
        bias=True,
        o_bias=True,
        fused_qkv=True,
        qkv_name="c_attn",
        o_name="c_proj",
    )
    mlp = DenseMlp(
        width=fields.count("n_inner", default=4 * hidden),
        gated=False,
        bias=True,
        activation=activation(fields, "activation_function", default="gelu_pytorch_tanh"),
        up_name="c_fc",
        down_name="c_proj",
    )
    block = Block(attention=attention, mlp=mlp, norm=Norm.LAYER, norm_bias=True)
    return root(
        fields,
        name=name,
        hidden=hidden,
        blocks=[(layers(fields, "n_layer", "num_hidden_layers"), block)],
        context_keys=("n_positions",),
        tied=True,
        norm=Norm.LAYER,
        norm_bias=True,
        learned_positions=fields.count("n_positions"),
        embed_name="wte",
    )
