"""Which recipe does a framework's name mean?"""

from __future__ import annotations

import re

from headcount.measure.mapping.evidence import Case, mapping_in
from headcount.measure.mapping.words import text_of

__all__ = ["recipe_of"]

# First match wins: forks and launchers name the library that they drive in brackets.
_RECIPES: tuple[tuple[str, str], ...] = (
    (r"swift.*(megatron|mcore)|(megatron|mcore).*swift", "ms-swift-megatron"),
    (r"swift", "ms-swift"),
    (r"llama-?factory", "llama-factory"),
    (r"axolotl", "axolotl"),
    (r"unsloth", "unsloth"),
    (r"torchtune", "torchtune"),
    (r"torchtitan", "torchtitan"),
    (r"prime-?rl", "prime-rl"),
    (r"litgpt|lit-gpt", "litgpt"),
    (r"nemo-?rl.*megatron", "nemo-rl-megatron"),
    (r"nemo-?rl", "nemo-rl"),
    (r"nemo-?aligner", "nemo-aligner"),
    (r"deepspeed-?chat|dschat|hybrid engine", "deepspeed-chat"),
    (r"openrlhf", "openrlhf"),
    (r"skyrl", "skyrl"),
    (r"slime|vime", "slime"),
    (r"areal", "areal"),
    (r"verl|tinyzero|rllm|easyr1|search-r1|agent-r1", "verl"),
    (r"open-instruct", "open-instruct"),
    (r"megatron", "megatron"),
    (r"llm-?foundry|mosaic|composer", "llm-foundry"),
    (r"\btrl\b|open-r1|\bspa\b|alignment-handbook", "trl"),
    (r"\bhf\b|hugging ?face|transformers|peft|accelerate", "hf-trainer"),
    (r"deepspeed", "deepspeed"),
)


def recipe_of(case: Case) -> str:
    """The recipe's name; empty where the framework is unknown (headcount's own defaults are then assumed)."""
    text = text_of(case.fields.get("framework"))
    context = " ".join(text_of(case.fields.get(key)) for key in ("framework", "precision", "source"))
    sharded = mapping_in(case.fields, "parallelism")
    deepspeed = any(sharded.get(key) is not None for key in ("zero_stage", "fsdp"))
    if "swift" in text and not deepspeed and re.search(r"megatron|mcore", context):
        return "ms-swift-megatron"
    if re.search(r"hf trainer\s*/\s*trl", text):
        return "hf-trainer"
    recipe = next((recipe for pattern, recipe in _RECIPES if re.search(pattern, text)), "")
    staged = any(isinstance(sharded.get(key), int) and sharded[key] > 1 for key in ("pp", "ep"))
    return "nemo-rl-megatron" if recipe == "nemo-rl" and staged else recipe
