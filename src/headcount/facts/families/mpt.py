"""What does an MPT config say? Its own key names (d_model, n_heads …), no biases, ALiBi, tied embeddings."""

from __future__ import annotations

from headcount.facts.config_file import Fields
from headcount.facts.families.standard import grouped, layers, root
from headcount.facts.model_shape import Activation, Block, DenseMlp, ModelShape, Norm

__all__ = ["read"]


def read(fields: Fields, *, name: str) -> ModelShape:
    """Multi-head attention only; learned positions (llm-foundry without ALiBi) and biases are refused."""
    inner = fields.child("attn_config")
    if inner.text("attn_type", default="multihead_attention") != "multihead_attention":
        inner.wrong("attn_type", "is not multihead_attention, the only one that transformers' MPT builds")
    if not inner.flag("alibi", default=True):
        inner.wrong("alibi", "is false; learned positions of MPT are not counted by this reader")
    if not fields.flag("no_bias", default=True):
        fields.wrong("no_bias", "is false; transformers' MPT has no biases")
    hidden = fields.count("d_model")
    heads = fields.count("n_heads")
    head_dim = fields.divides("n_heads", hidden, heads, of="d_model")
    mlp = DenseMlp(width=4 * hidden, gated=False, activation=Activation.GELU)
    block = Block(
        attention=grouped(
            fields, heads=heads, kv_heads=heads, head_dim=head_dim, fused_qkv=True, qkv_name="Wqkv", o_name="out_proj"
        ),
        mlp=mlp,
        norm=Norm.LAYER,
    )
    return root(
        fields,
        name=name,
        hidden=hidden,
        blocks=[(layers(fields, "n_layers"), block)],
        context_keys=("max_seq_len",),
        tied=True,
        norm=Norm.LAYER,
        embed_name="wte",
    )
