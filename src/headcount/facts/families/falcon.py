"""What does a Falcon config say? Fused qkv, one key head (7B) or groups (40B, 180B), LayerNorm, parallel blocks."""

from __future__ import annotations

from headcount.facts.config_file import Fields
from headcount.facts.families.standard import activation, grouped, layers, root
from headcount.facts.model_shape import Attention, Block, DenseMlp, ModelShape, Norm

__all__ = ["read"]


def read(fields: Fields, *, name: str) -> ModelShape:
    """`new_decoder_architecture` (40B, 180B) has groups of keys and two norms side by side."""
    hidden = fields.count("hidden_size")
    bias = fields.flag("bias")
    parallel = fields.flag("parallel_attn", default=True)
    new = fields.flag("new_decoder_architecture")
    side_by_side = fields.count("num_ln_in_parallel_attn", default=2 if new else 1)
    mlp = DenseMlp(
        width=fields.count("ffn_hidden_size", default=4 * hidden),
        gated=False,
        bias=bias,
        activation=activation(fields, "activation", default="gelu"),
        up_name="dense_h_to_4h",
        down_name="dense_4h_to_h",
    )
    block = Block(
        attention=_attention(fields, hidden=hidden, bias=bias, new=new),
        mlp=mlp,
        norm=Norm.LAYER,
        norms=side_by_side if parallel else 2,
        norm_bias=True,
        parallel=parallel or new,
    )
    return root(
        fields,
        name=name,
        hidden=hidden,
        blocks=[(layers(fields, "num_hidden_layers", "n_layer"), block)],
        default_max_tokens=2048,
        tied=True,
        norm=Norm.LAYER,
        norm_bias=True,
        embed_name="word_embeddings",
    )


def _attention(fields: Fields, *, hidden: int, bias: bool, new: bool) -> Attention:
    heads = fields.count("num_attention_heads", "n_head")
    one_key_head = fields.flag("multi_query", default=True) and not new
    return grouped(
        fields,
        heads=heads,
        kv_heads=1 if one_key_head else fields.count("num_kv_heads", "n_head_kv", default=heads) if new else heads,
        head_dim=fields.divides("num_attention_heads", hidden, heads, of="hidden_size"),
        bias=bias,
        o_bias=bias,
        fused_qkv=True,
        qkv_name="query_key_value",
        o_name="dense",
    )
