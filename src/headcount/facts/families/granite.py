"""What does a Granite config say? Llama's keys; its multipliers change numbers, and which tensors are new ones."""

from __future__ import annotations

from dataclasses import replace

from headcount.facts.config_file import Fields
from headcount.facts.families import llama
from headcount.facts.model_shape import ModelShape

__all__ = ["read"]


def read(fields: Fields, *, name: str) -> ModelShape:
    """The embedding's output is multiplied before it enters the first block."""
    return replace(llama.read(fields, name=name), embed_scaled=True)
