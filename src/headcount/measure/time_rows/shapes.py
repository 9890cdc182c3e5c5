"""Which shapes do published speed tables mean? Widths alone where no shipped config has them: enough for FLOPs."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

from headcount.facts.model_shape import Attention, Block, DenseMlp, ModelShape, MoeMlp
from headcount.facts.models import find_model

__all__ = ["table_shape"]

# layers, hidden, heads, key-value heads, head width, MLP width, gated, vocabulary, tied
_DENSE: Mapping[str, tuple[int, int, int, int, int, int, bool, int, bool]] = {
    # mosaicml/llm-foundry scripts/train/yamls/pretrain/mpt-*.yaml: expansion 4, tied
    "mpt-125m": (12, 768, 12, 12, 64, 3072, False, 50368, True),
    "mpt-350m": (24, 1024, 16, 16, 64, 4096, False, 50368, True),
    "mpt-760m": (24, 1536, 12, 12, 128, 6144, False, 50368, True),
    "mpt-1b": (24, 2048, 16, 16, 128, 8192, False, 50368, True),
    "mpt-3b": (32, 2560, 20, 20, 128, 10240, False, 50368, True),
    "mpt-7b": (32, 4096, 32, 32, 128, 16384, False, 50368, True),
    "mpt-13b": (40, 5120, 40, 40, 128, 20480, False, 50368, True),
    "mpt-30b": (48, 7168, 56, 56, 128, 28672, False, 50368, True),
    "mpt-70b": (80, 8192, 64, 64, 128, 32768, False, 50368, True),
    # NVIDIA NeMo recipes: GPT-3 (Brown et al., arXiv:2005.14165), Nemotron-4 (arXiv:2402.16819, arXiv:2406.11704)
    "gpt-3-175b": (96, 12288, 96, 96, 128, 49152, False, 51200, True),
    "gpt3-175b": (96, 12288, 96, 96, 128, 49152, False, 51200, True),
    "gpt3-20b": (44, 6144, 48, 48, 128, 24576, False, 51200, True),
    "nemotron-4-15b": (32, 6144, 48, 8, 128, 24576, False, 256000, False),
    "nemotron-4-340b": (96, 18432, 96, 8, 192, 73728, False, 256000, False),
    "nemotron-340b": (96, 18432, 96, 8, 192, 73728, False, 256000, False),
}
# the same, then experts and active ones
_MIXTURES: Mapping[str, tuple[int, int, int, int, int, int, int, int, int]] = {
    "grok-1-314b": (64, 6144, 48, 8, 128, 32768, 131072, 8, 2),  # xai-org/grok-1 model.py
}
_HUB: Mapping[str, str] = {
    "gpt oss 120b": "openai/gpt-oss-120b",
    "deepseekv3": "deepseek-ai/DeepSeek-V3",
    "deepseek-v3-671b": "deepseek-ai/DeepSeek-V3",
    "llama3.1_405b": "meta-llama/Llama-3.1-405B",
    "llama-3.1-405b": "meta-llama/Llama-3.1-405B",
    "llama-3.1-70b": "meta-llama/Llama-3.1-70B",
    "llama-3.1-8b": "meta-llama/Llama-3.1-8B",
    "llama3_70b": "meta-llama/Meta-Llama-3-70B",
    "llama-3-70b": "meta-llama/Meta-Llama-3-70B",
    "llama3-8b": "meta-llama/Meta-Llama-3-8B",
    "llama3_8b": "meta-llama/Meta-Llama-3-8B",
    "llama-3-8b": "meta-llama/Meta-Llama-3-8B",
    "llama-3.2-3b": "meta-llama/Llama-3.2-3B",
    "llama2-7b": "meta-llama/Llama-2-7b-hf",
    "llama2-13b": "meta-llama/Llama-2-13b-hf",
    "llama2-70b": "meta-llama/Llama-2-70b-hf",
    "llama-2-70b": "meta-llama/Llama-2-70b-hf",
    "llama-4-maverick-400b": "meta-llama/Llama-4-Maverick-17B-128E",
    "mixtral-8x7b": "mistralai/Mixtral-8x7B-v0.1",
    "kimi_k2": "moonshotai/Kimi-K2-Instruct",
    "qwen3_30b_a3b": "Qwen/Qwen3-30B-A3B",
    "qwen3-30b3a": "Qwen/Qwen3-30B-A3B",
    "qwen3-30b-a3b-base": "Qwen/Qwen3-30B-A3B",
    "qwen3_235b_a22b": "Qwen/Qwen3-235B-A22B",
    "qwen3-235b": "Qwen/Qwen3-235B-A22B",
    "qwen3-32b": "Qwen/Qwen3-32B",
    "deepseek v3": "deepseek-ai/DeepSeek-V3",
    "llama3.1_8b": "meta-llama/Llama-3.1-8B",
    "qwen2.5-math-7b": "Qwen/Qwen2.5-Math-7B",
    "llama-2 13b": "meta-llama/Llama-2-13b-hf",
}


@cache
def table_shape(name: str) -> ModelShape:
    """The shape that a table's label means; what stands in brackets says how it was run, not what it is.

    Raises:
        UnknownFact: neither a label of ours nor a shipped model.
    """
    label = name.partition(" (")[0].strip()
    key = label.lower()
    if key in _DENSE:
        layers, hidden, heads, kv_heads, head_dim, width, gated, vocab, tied = _DENSE[key]
        attention = Attention(heads=heads, kv_heads=kv_heads, head_dim=head_dim)
        block = Block(attention=attention, mlp=DenseMlp(width=width, gated=gated))
        return _shape(label, hidden, layers, block, vocab, tied=tied)
    if key in _MIXTURES:
        layers, hidden, heads, kv_heads, head_dim, width, vocab, experts, active = _MIXTURES[key]
        attention = Attention(heads=heads, kv_heads=kv_heads, head_dim=head_dim)
        block = Block(attention=attention, mlp=MoeMlp(experts=experts, active=active, width=width))
        return _shape(label, hidden, layers, block, vocab, tied=True)
    return find_model(_HUB.get(key, label))


def _shape(name: str, hidden: int, layers: int, block: Block, vocab: int, *, tied: bool) -> ModelShape:
    return ModelShape(
        name=name,
        family="table",
        hidden=hidden,
        blocks=((layers, block),),
        vocab=vocab,
        max_tokens=10**6,
        tied=tied,
    )
