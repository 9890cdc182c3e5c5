"""What does an OLMoE config say? Routed experts as wide as `intermediate_size`, q/k norms over the whole width."""

from __future__ import annotations

from headcount.facts.config_file import Fields
from headcount.facts.families.standard import QWEN_EXPERTS, attention, experts, layers, root
from headcount.facts.model_shape import Block, ModelShape, QkNorm

__all__ = ["read"]


def read(fields: Fields, *, name: str) -> ModelShape:
    """Unlike OLMo 2, the norms sit before attention and MLP."""
    hidden = fields.count("hidden_size")
    bias = fields.flag("attention_bias")
    block = Block(
        attention=attention(fields, hidden=hidden, bias=bias, o_bias=bias, qk_norm=QkNorm.FULL_WIDTH),
        mlp=experts(fields, count_key="num_experts", width_key="intermediate_size", expert_names=QWEN_EXPERTS),
    )
    return root(fields, name=name, hidden=hidden, blocks=[(layers(fields), block)])
