"""Which reader turns a config.json of this `model_type` into a ModelShape?

One file per family, loaded only when a config asks for it. To add a family: a file here with
`read(fields, *, name) -> ModelShape`, its model_type below, a row in `tests/parity/test_parameter_counts.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from difflib import get_close_matches
from importlib import import_module
from typing import Any

from headcount.errors import InputError, UnknownFact
from headcount.facts.config_file import Fields, shown
from headcount.facts.model_shape import ModelShape

__all__ = ["FAMILIES", "read_shape"]

# model_type in config.json → the file here that reads it
FAMILIES: Mapping[str, str] = {
    "bloom": "bloom",
    "cohere": "cohere",
    "cohere2": "cohere",
    "deepseek_v2": "deepseek",
    "deepseek_v3": "deepseek",
    "kimi_k2": "deepseek",
    "falcon": "falcon",
    "gemma": "gemma",
    "gemma2": "gemma2",
    "gemma3": "with_vision",
    "gemma3_text": "gemma3",
    "glm": "glm",
    "glm4": "glm",
    "glm4_moe": "glm4_moe",
    "glm_moe_dsa": "glm_moe_dsa",
    "gpt2": "gpt2",
    "gpt_bigcode": "gpt_bigcode",
    "gpt_neox": "gpt_neox",
    "gpt_oss": "gpt_oss",
    "gptj": "gptj",
    "granite": "granite",
    "granitemoe": "granite_moe",
    "kimi_k25": "with_vision",
    "llama": "llama",
    "llama4": "with_vision",
    "llama4_text": "llama4",
    "minimax_m2": "minimax_m2",
    "mistral": "mistral",
    "mistral3": "with_vision",
    "mixtral": "mixtral",
    "mpt": "mpt",
    "nemotron": "nemotron",
    "olmo": "olmo",
    "olmo2": "olmo2",
    "olmo3": "olmo2",
    "olmoe": "olmoe",
    "opt": "opt",
    "phi": "phi",
    "phi3": "phi3",
    "qwen": "qwen",
    "qwen2": "qwen2",
    "qwen2_moe": "qwen2_moe",
    "qwen3": "qwen3",
    "qwen3_moe": "qwen3_moe",
    "smollm3": "smollm3",
    "stablelm": "stablelm",
    "starcoder2": "starcoder2",
}


def read_shape(config: Mapping[str, Any], *, name: str, source: str) -> ModelShape:
    """The shape that `config` describes. InputError lists every wrong key; UnknownFact names what to add."""
    fields = Fields(config, where=name)
    family = _known_family(config, name)
    reader = import_module(f"{__name__}.{FAMILIES[family]}")
    try:
        shape: ModelShape = reader.read(fields, name=name)
    except ValueError as error:
        # A relation that only the finished shape sees; what is wrong with single keys comes first.
        fields.close()
        raise InputError.one(name, str(error), "check these keys in the config.json") from None
    fields.close()
    return replace(shape, source=f"{source} {shape.source}".strip())


def _known_family(config: Mapping[str, Any], name: str) -> str:
    family = config.get("model_type")
    if not isinstance(family, str):
        is_there = "model_type" in config
        what = f"is {shown(family)}, must be a string" if is_there else "is missing"
        what = f"{what}: it says which family's keys to read"
        raise InputError.one(f"{name}: model_type", what, 'add "model_type": "llama" or the family it is')
    if family not in FAMILIES:
        raise UnknownFact.one(f"{name}: model_type", _unknown(family), _how_to_add(family))
    return family


def _unknown(family: str) -> str:
    near = get_close_matches(family.lower(), FAMILIES, n=1, cutoff=0.0)
    return f"{family[:60]!r} has no reader (nearest known family: {near[0]}); its shape is not guessed"


def _how_to_add(family: str) -> str:
    file = family if family.isidentifier() and len(family) <= 60 else "NAME"
    return (
        f"add src/headcount/facts/families/{file}.py with read(fields, *, name) that fills ModelShape: hidden, blocks "
        "(attention: heads, kv_heads, head_dim, biases, qk_norm, window; mlp: width or experts, active; norms), vocab, "
        "max_tokens, tied, final norm, positions; then name it in FAMILIES"
    )
