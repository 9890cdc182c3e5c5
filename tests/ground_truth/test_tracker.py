"""Does the measuring harness itself reproduce known figures: kept bytes per block, optimizer states, adapters?

The figures were taken once on PyTorch 2.13, transformers 5.24 and peft 0.21 with another tool (saved-tensor hooks on
real CPU tensors); several of them follow from closed forms given beside them. Tiny models: h 96, f 224, 6 heads, 2 KV
heads of 16, 2 rows of 32 tokens.
"""

from __future__ import annotations

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from tests.ground_truth.kept import kept_per_block
from tests.ground_truth.tracker import Tracker

pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning:transformers")
DTYPES = (torch.bfloat16, torch.float32)

# bytes of one block for 64 tokens: bf16, fp32
KEPT = {
    "llama": (247_808, 444_416),  # 64 × (16h + 8 + 4·8·16 + 4·6 + 8f)
    "qwen2": (247_808, 444_416),
    "mistral": (247_808, 444_416),
    "qwen3": (299_008, 512_000),
    "phi3": (276_480, 501_760),
    "gemma": (273_152, 445_184),
    "gemma2": (485_888, 674_304),
    "gemma3_text": (440_448, 612_480),
    "gpt2": (243_712, 485_888),
    "opt": (129_024, 256_512),
    "qwen3_moe": (280_864, None),  # grouped matmul wants bf16
}
CASES = [
    (family, dtype, kept) for family, both in KEPT.items() for dtype, kept in zip(DTYPES, both, strict=True) if kept
]


@pytest.mark.parametrize(("family", "dtype", "kept"), CASES)
def test_a_block_keeps_the_printed_bytes(family, dtype, kept):
    changes = {"norm_topk_prob": False} if family == "qwen3_moe" else {}
    assert kept_per_block(family, rows=2, row_tokens=32, dtype=dtype, **changes) == kept


def test_a_llama_block_under_all_linear_adapters_keeps_3544_bytes_a_token():
    assert kept_per_block("llama", rows=2, row_tokens=32, lora_rank=4) == 64 * 3544


@pytest.mark.parametrize("family", ["llama", "gpt2"])
def test_a_checkpointed_block_keeps_only_its_input(family):
    assert kept_per_block(family, rows=2, row_tokens=32, checkpointing=True) == 64 * 96 * 2


@pytest.mark.parametrize(
    ("how", "temporary_per_state_byte"), [({"fused": True}, 0.0), ({"foreach": True}, 1.0)], ids=["fused", "foreach"]
)
def test_adamw_step(how, temporary_per_state_byte):
    """Fused makes nothing; foreach makes the list of square roots, one more copy of the parameters."""
    numbers, tensors = 1024, 8
    with FakeTensorMode():
        weights = [torch.nn.Parameter(torch.zeros(numbers)) for _ in range(tensors)]
        optimizer = torch.optim.AdamW(weights, **how)
        for weight in weights:
            weight.grad = torch.zeros(numbers)
        with Tracker(weights) as tracker:
            optimizer.step()
            settled = tracker.live
            tracker.reset_peak()
            optimizer.step()
    weight_bytes = 4 * numbers * tensors
    small = 2 * 4 * tensors * 4  # a handful of scalars a tensor
    assert 2 * weight_bytes <= settled <= 2 * weight_bytes + small
    above = tracker.peak - settled
    assert abs(above - temporary_per_state_byte * weight_bytes) <= small


def test_a_saved_view_keeps_its_whole_storage():
    with FakeTensorMode(), Tracker() as tracker:
        whole = torch.empty(1000, 8)
        part = whole[0]
        del whole
        assert tracker.live == 1000 * 8 * 4
        del part
        assert tracker.live == 0
    assert tracker.peak == 32_000
