"""What does a Qwen3-MoE config say? Qwen3's attention, routed experts, no shared one."""

from __future__ import annotations

from headcount.facts.config_file import Fields
from headcount.facts.families.qwen2_moe import sparse_mlps
from headcount.facts.families.qwen3 import qwen3_attention
from headcount.facts.families.standard import QWEN_EXPERTS, experts, layers, root, runs
from headcount.facts.model_shape import Block, ModelShape

__all__ = ["read"]


def read(fields: Fields, *, name: str) -> ModelShape:
    """head_dim is hidden ÷ heads where the config leaves it out (unlike dense Qwen3)."""
    hidden = fields.count("hidden_size")
    window = fields.count("sliding_window", default=4096) if fields.flag("use_sliding_window") else None
    attention = qwen3_attention(fields, hidden=hidden, window=window, default_head_dim=None)
    moe = experts(fields, count_key="num_experts", width_key="moe_intermediate_size", expert_names=QWEN_EXPERTS)
    mlps = sparse_mlps(fields, moe, layers(fields))
    blocks = runs(Block(attention=attention, mlp=mlp) for mlp in mlps)
    return root(fields, name=name, hidden=hidden, blocks=blocks)
