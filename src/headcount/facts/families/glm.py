"""What does a GLM-4 config say? Biases on q, k, v, gate and up in one linear; `glm4` has four norms, `glm` two."""

from __future__ import annotations

from headcount.facts.config_file import Fields
from headcount.facts.families.standard import attention, dense_mlp, layers, root
from headcount.facts.model_shape import Block, ModelShape

__all__ = ["read"]


def read(fields: Fields, *, name: str) -> ModelShape:
    """The output projection never has a bias."""
    hidden = fields.count("hidden_size")
    block = Block(
        attention=attention(
            fields,
            hidden=hidden,
            bias=fields.flag("attention_bias", default=True),
            default_head_dim=128,
            joined_rotary=True,
        ),
        mlp=dense_mlp(fields, fused_gate_up=True),
        norms=4 if fields.values.get("model_type") == "glm4" else 2,
    )
    return root(fields, name=name, hidden=hidden, blocks=[(layers(fields), block)])
