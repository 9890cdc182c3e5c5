"""Key-value bytes per token of known models, from their configs on the Hugging Face hub."""

from __future__ import annotations

import pytest

from headcount.estimate.kv_cache import bytes_per_token, concurrency_cap, kv_cache
from headcount.facts.models import find_model
from headcount.units import GIB, KIB


@pytest.mark.parametrize(
    ("model", "kib"),
    [
        ("meta-llama/Llama-3.1-8B", 128),
        ("meta-llama/Llama-3.1-70B", 320),
        ("Qwen/Qwen2.5-7B-Instruct", 56),
        ("Qwen/Qwen3-30B-A3B", 96),
        ("deepseek-ai/DeepSeek-V3", 68.625),  # 61 layers × (512 + 64) × 2, arXiv:2412.19437
    ],
)
def test_bf16_kib_per_token(model: str, kib: float) -> None:
    assert bytes_per_token(find_model(model)).value / KIB == pytest.approx(kib)


def test_tensor_parallelism_copies_heads_that_it_cannot_divide() -> None:
    shape = find_model("Qwen/Qwen2.5-7B-Instruct")  # 4 key heads
    at = {tensor: bytes_per_token(shape, tensor=tensor).value / KIB for tensor in (1, 2, 4, 8)}
    assert at == {1: 56, 2: 28, 4: 14, 8: 14}


def test_tensor_parallelism_does_not_divide_a_latent_cache() -> None:
    shape = find_model("deepseek-ai/DeepSeek-V3")
    assert bytes_per_token(shape, tensor=8).value == bytes_per_token(shape).value


def test_a_sliding_window_caps_its_layers() -> None:
    shape = find_model("google/gemma-2-9b")  # every second layer sees 4,096 tokens
    short, long = (kv_cache(shape, sequences=1, tokens=n).value for n in (4096, 8192))
    assert long == pytest.approx(1.5 * short)


def test_8b_in_40_gib_holds_160_sequences_of_2048() -> None:
    shape = find_model("meta-llama/Llama-3.1-8B")
    assert concurrency_cap(shape, budget_bytes=40 * GIB, tokens=2048) == 160
