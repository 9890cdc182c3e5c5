"""The totals that everybody quotes: bytes per parameter × parameters, per algorithm, without activations.

A trainable network at 16 (ZeRO), 18 (Hugging Face) or 12 bytes a parameter, a frozen one at 2; the generator shares
the policy's weights. InstructGPT (arXiv:2203.02155): policy and reference of 175B, reward and critic of 6B.
"""

from __future__ import annotations

import pytest

from headcount.estimate.model_state import nf4_bytes_per_parameter, state_total

SEVEN, SEVENTY = 7e9, 70e9


def _gigabytes(trainable: list[float], frozen: list[float], *, each: float) -> float:
    state = sum(state_total(size, bytes_per_parameter=each).value for size in trainable)
    return (state + sum(state_total(size, bytes_per_parameter=2).value for size in frozen)) / 1e9


@pytest.mark.parametrize(
    ("each", "ppo", "with_reference", "alone"), [(16, 252, 126, 112), (18, 280, 140, 126), (12, 196, 98, 84)]
)
def test_7b_totals(each: float, ppo: float, with_reference: float, alone: float) -> None:
    assert _gigabytes([SEVEN, SEVEN], [SEVEN, SEVEN], each=each) == ppo
    assert _gigabytes([SEVEN], [SEVEN], each=each) == with_reference
    assert _gigabytes([SEVEN], [], each=each) == alone


@pytest.mark.parametrize(("each", "trainable"), [(16, 1120), (18, 1260), (12, 840)])
def test_70b_totals(each: float, trainable: float) -> None:
    assert _gigabytes([SEVENTY], [], each=each) == trainable
    assert _gigabytes([], [SEVENTY], each=each) == 140


def test_instructgpt_is_half_of_what_equal_sizes_would_be() -> None:
    assert _gigabytes([175e9, 6e9], [175e9, 6e9], each=16) == 3258
    assert _gigabytes([175e9, 175e9], [175e9, 175e9], each=16) == 6300


def test_nf4_with_and_without_double_quantisation() -> None:
    # QLoRA, arXiv:2305.14314 section 3: double quantisation takes 0.5 bits a parameter down to 0.127.
    assert nf4_bytes_per_parameter(double_quant=False).value == 0.5625
    assert nf4_bytes_per_parameter().value == pytest.approx(0.516, abs=0.0005)
