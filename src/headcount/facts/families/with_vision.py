"""What does a vision-language config say about its language model? (Gemma 3, Llama 4, Mistral 3, Kimi K2.5)

Its `text_config` is a config of a text family, and is read as such. The vision tower is not counted, and the shape's
source says so.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from importlib import import_module

from headcount.facts.config_file import Fields
from headcount.facts.model_shape import ModelShape

__all__ = ["read"]

# model_type → (the text model's model_type, the file that reads it)
_TEXT: Mapping[str, tuple[str, str]] = {
    "gemma3": ("gemma3_text", "gemma3"),
    "kimi_k25": ("kimi_k2", "deepseek"),
    "llama4": ("llama4_text", "llama4"),
    "mistral3": ("mistral", "mistral"),
}


def read(fields: Fields, *, name: str) -> ModelShape:
    """The language model alone."""
    family = str(fields.values["model_type"])
    text_type, file = _TEXT[family]
    text = fields.child("text_config")
    if text.values.get("model_type", text_type) != text_type:
        text.wrong("model_type", f"is not {text_type}, the only text model that {family} is known with")
    shape = import_module(f"headcount.facts.families.{file}").read(text, name=name)
    return replace(shape, family=family, source="(language model; the vision tower is not counted)")
