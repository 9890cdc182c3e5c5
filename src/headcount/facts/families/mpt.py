"""What does an MPT config say? Its own key names (d_model, n_heads …), tied embeddings.

The released models have ALiBi and no biases, and transformers builds nothing else; llm-foundry's own models may have
learned positions (`attn_config.alibi` false) and biases (`no_bias` false): llmfoundry/models/mpt/modeling_mpt.py.
"""

from __future__ import annotations

from headcount.facts.config_file import Fields
from headcount.facts.families.standard import grouped, layers, root
from headcount.facts.model_shape import Activation, Block, DenseMlp, ModelShape, Norm

__all__ = ["read"]


def read(fields: Fields, *, name: str) -> ModelShape:
    """Multi-head attention only; multi-query MPT is refused."""
    inner = fields.child("attn_config")
    if inner.text("attn_type", default="multihead_attention") != "multihead_attention":
        inner.wrong("attn_type", "is not multihead_attention, the only one that this reader counts")
    if inner.flag("qk_ln"):
        inner.wrong("qk_ln", "is true; norms on queries and keys of MPT are not counted by this reader")
    learned = not inner.flag("alibi", default=True) and fields.flag("learned_pos_emb", default=True)
    bias = not fields.flag("no_bias", default=True)
    hidden = fields.count("d_model")
    return root(
        fields,
        name=name,
        hidden=hidden,
        blocks=[(layers(fields, "n_layers"), _block(fields, hidden=hidden, bias=bias))],
        context_keys=("max_seq_len",),
        tied=True,
        norm=Norm.LAYER,
        norm_bias=bias,
        learned_positions=fields.count("max_seq_len") if learned else 0,
        embed_name="wte",
    )


def _block(fields: Fields, *, hidden: int, bias: bool) -> Block:
    heads = fields.count("n_heads")
    attention = grouped(
        fields,
        heads=heads,
        kv_heads=heads,
        head_dim=fields.divides("n_heads", hidden, heads, of="d_model"),
        bias=bias,
        o_bias=bias,
        fused_qkv=True,
        qkv_name="Wqkv",
        o_name="out_proj",
    )
    width = fields.count("expansion_ratio", default=4) * hidden
    mlp = DenseMlp(width=width, gated=False, bias=bias, activation=Activation.GELU)
    return Block(attention=attention, mlp=mlp, norm=Norm.LAYER, norm_bias=bias)
