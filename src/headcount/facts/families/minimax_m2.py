"""What does a MiniMax-M2 config say? q/k norms over the whole width, experts in every block, none shared."""

from __future__ import annotations

from headcount.facts.config_file import Fields
from headcount.facts.families.standard import MIXTRAL_EXPERTS, attention, experts, layers, root
from headcount.facts.model_shape import Block, ModelShape, QkNorm

__all__ = ["read"]


def read(fields: Fields, *, name: str) -> ModelShape:
    """Experts are as wide as `intermediate_size`."""
    hidden = fields.count("hidden_size")
    block = Block(
        attention=attention(fields, hidden=hidden, qk_norm=QkNorm.FULL_WIDTH, default_head_dim=128),
        mlp=experts(fields, count_key="num_local_experts", width_key="intermediate_size", expert_names=MIXTRAL_EXPERTS),
    )
    return root(fields, name=name, hidden=hidden, blocks=[(layers(fields), block)])
