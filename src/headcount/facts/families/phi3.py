"""What does a Phi-3, Phi-3.5 or Phi-4 config say? Llama with q, k, v in one linear and gate, up in another."""

from __future__ import annotations

from headcount.facts.config_file import Fields
from headcount.facts.families.standard import attention, dense_mlp, layers, root
from headcount.facts.model_shape import Block, ModelShape

__all__ = ["read"]


def read(fields: Fields, *, name: str) -> ModelShape:
    """No biases; `sliding_window` where the config has one."""
    hidden = fields.count("hidden_size")
    block = Block(
        attention=attention(
            fields,
            hidden=hidden,
            fused_qkv=True,
            joined_rotary=True,
            window=fields.maybe_count("sliding_window"),
            qkv_name="qkv_proj",
        ),
        mlp=dense_mlp(fields, fused_gate_up=True),
    )
    return root(fields, name=name, hidden=hidden, blocks=[(layers(fields), block)])
