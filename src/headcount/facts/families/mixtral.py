"""What does a Mixtral config say? Mistral's attention and `num_local_experts` experts in every block."""

from __future__ import annotations

from headcount.facts.config_file import Fields
from headcount.facts.families.standard import MIXTRAL_EXPERTS, attention, experts, layers, root
from headcount.facts.model_shape import Block, ModelShape

__all__ = ["read"]


def read(fields: Fields, *, name: str) -> ModelShape:
    """Experts are as wide as `intermediate_size`."""
    hidden = fields.count("hidden_size")
    block = Block(
        attention=attention(fields, hidden=hidden, window=fields.maybe_count("sliding_window")),
        mlp=experts(
            fields,
            count_key="num_local_experts",
            width_key="intermediate_size",
            expert_names=MIXTRAL_EXPERTS,
            normalised=True,
            fp32_weights=True,
        ),
    )
    return root(fields, name=name, hidden=hidden, blocks=[(layers(fields), block)])
