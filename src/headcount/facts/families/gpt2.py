"""What does a GPT-2 config say? Its own key names (n_embd, n_head …), fused c_attn, learned positions, tied head."""

from __future__ import annotations

from headcount.facts.config_file import Fields
from headcount.facts.families.standard import activation, layers, root
from headcount.facts.model_shape import Attention, Block, DenseMlp, ModelShape, Norm

__all__ = ["read"]


def read(fields: Fields, *, name: str) -> ModelShape:
    """The MLP is 4 × n_embd wide unless n_inner says otherwise."""
    hidden = fields.count("n_embd", "hidden_size")
    heads = fields.count("n_head", "num_attention_heads")
    attention = Attention(
        heads=heads,
        kv_heads=heads,
        head_dim=fields.divides("n_head", hidden, heads, of="n_embd"),
        fused_qkv=True,
        q_bias=True,
        k_bias=True,
        v_bias=True,
        o_bias=True,
        qkv_name="c_attn",
        o_name="c_proj",
    )
    mlp = DenseMlp(
        width=fields.count("n_inner", default=4 * hidden),
        gated=False,
        bias=True,
        activation=activation(fields, "activation_function", default="gelu_new"),
        up_name="c_fc",
        down_name="c_proj",
    )
    block = Block(attention=attention, mlp=mlp, norm=Norm.LAYER, norm_bias=True)
    return root(
        fields,
        name=name,
        hidden=hidden,
        blocks=[(layers(fields, "n_layer", "num_hidden_layers"), block)],
        context_keys=("n_positions", "n_ctx", "max_position_embeddings"),
        tied=True,
        norm=Norm.LAYER,
        norm_bias=True,
        learned_positions=fields.count("n_positions", "n_ctx", "max_position_embeddings"),
        embed_name="wte",
    )
