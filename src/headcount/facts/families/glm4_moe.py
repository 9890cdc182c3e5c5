"""What does a GLM-4.5 or 4.6 config say? Grouped-query attention, leading dense layers, routed and shared experts."""

from __future__ import annotations

from headcount.facts.config_file import Fields
from headcount.facts.families.deepseek import leading_dense, routed
from headcount.facts.families.standard import attention, dense_mlp, layers, root
from headcount.facts.model_shape import ModelShape, QkNorm

__all__ = ["read"]


def read(fields: Fields, *, name: str) -> ModelShape:
    """`use_qk_norm` differs between GLM-4.5 and GLM-4.5-Air."""
    hidden = fields.count("hidden_size")
    seen = attention(
        fields,
        hidden=hidden,
        bias=fields.flag("attention_bias"),
        qk_norm=QkNorm.PER_HEAD if fields.flag("use_qk_norm") else QkNorm.NONE,
    )
    blocks = leading_dense(fields, seen, dense_mlp(fields), routed(fields), count=layers(fields))
    return root(fields, name=name, hidden=hidden, blocks=blocks)
