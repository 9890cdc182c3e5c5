"""What does a first-generation Qwen config say? (remote code: QWenLMHeadModel in modeling_qwen.py of its repository)

`intermediate_size` is twice the width of one branch: w1 and w2 are each half of it. c_attn has a bias, nothing else
has one (`no_bias`).
"""

from __future__ import annotations

from headcount.facts.config_file import Fields
from headcount.facts.families.standard import layers, root
from headcount.facts.model_shape import Activation, Attention, Block, DenseMlp, ModelShape

__all__ = ["read"]


def read(fields: Fields, *, name: str) -> ModelShape:
    """Fused c_attn of 3 × heads × kv_channels; gate is w2, up is w1."""
    hidden = fields.count("hidden_size")
    heads = fields.count("num_attention_heads")
    biased = not fields.flag("no_bias", default=True)
    attention = Attention(
        heads=heads,
        kv_heads=heads,
        head_dim=fields.count("kv_channels", default=128),
        fused_qkv=True,
        q_bias=True,
        o_bias=biased,
        qkv_name="c_attn",
        o_name="c_proj",
    )
    width = fields.divides("intermediate_size", fields.count("intermediate_size"), 2, of="intermediate_size")
    mlp = DenseMlp(
        width=width, bias=biased, activation=Activation.SILU, gate_name="w2", up_name="w1", down_name="c_proj"
    )
    blocks = [(layers(fields), Block(attention=attention, mlp=mlp))]
    return root(fields, name=name, hidden=hidden, blocks=blocks, embed_name="wte")
