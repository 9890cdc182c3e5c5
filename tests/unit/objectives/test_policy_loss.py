"""Do the policy losses clip where they say, and are they the policy gradient where the policy has not moved?

Shape letters: B sequences · T tokens.
"""

from __future__ import annotations

import math

import pytest
import torch

from headcount.objectives.logprobs import log_ratio
from headcount.objectives.policy_loss import (
    cispo_loss,
    clipped_policy_loss,
    dual_clipped_policy_loss,
    geometric_masked_weights,
    icepop_weights,
    is_clipped_high,
    is_clipped_low,
    negative_log_likelihood,
    reinforce_loss,
    sequence_log_ratio,
    sequence_masked_weights,
    sequence_token_log_ratio,
    truncated_weights,
)
from headcount.objectives.reduce import StepCounts, seq_mean_token_mean, token_mean, weighted_sum

CLIP = {"clip_low": 0.2, "clip_high": 0.2}
DAPO_CLIP = {"clip_low": 0.2, "clip_high": 0.28}
ROUNDING = {"rtol": 1e-12, "atol": 1e-14}  # float64: exp of log


def _double(*numbers: float) -> torch.Tensor:
    return torch.tensor(numbers, dtype=torch.float64)


def _batch(seed: int = 0):
    torch.manual_seed(seed)
    logprob_BT = -torch.rand(3, 5, dtype=torch.float64).requires_grad_()
    mask_BT = torch.arange(5) < torch.tensor([5, 2, 3])[:, None]
    advantage_BT = torch.where(mask_BT, torch.randn(3, 1, dtype=torch.float64), 0.0)
    leaf_BT = logprob_BT.detach().requires_grad_()
    return leaf_BT, advantage_BT, mask_BT


@pytest.mark.parametrize(
    ("ratio", "advantage", "expected", "slope"),
    [
        # value of training.md §4; slope ∂/∂ℓ = −Âρ, or 0 where clipped
        (1.5, 1.0, -1.2, 0.0),
        (1.5, -1.0, 1.5, 1.5),
        (0.5, 1.0, -0.5, -0.5),
        (0.5, -1.0, 0.8, 0.0),
        (1.1, 1.0, -1.1, -1.1),
    ],
)
def test_clip_vectors_of_training_md(ratio: float, advantage: float, expected: float, slope: float):
    ratio_B = _double(math.log(ratio)).requires_grad_()
    loss_B = clipped_policy_loss(ratio_B, _double(advantage), **CLIP)
    loss_B.backward()
    assert loss_B.item() == pytest.approx(expected, abs=1e-15)
    assert ratio_B.grad is not None
    assert ratio_B.grad.item() == pytest.approx(slope, abs=1e-15)


@pytest.mark.parametrize(("ratio", "expected", "slope"), [(5.0, 3.0, 0.0), (2.0, 2.0, 2.0), (0.5, 0.8, 0.0)])
def test_dual_clip_bounds_a_bad_token_that_became_likely(ratio: float, expected: float, slope: float):
    ratio_B = _double(math.log(ratio)).requires_grad_()
    loss_B = dual_clipped_policy_loss(ratio_B, _double(-1.0), **CLIP, dual_clip=3.0)
    loss_B.backward()
    assert loss_B.item() == pytest.approx(expected, abs=1e-14)
    assert ratio_B.grad is not None
    assert ratio_B.grad.item() == pytest.approx(slope, abs=1e-14)


def test_dual_clip_leaves_good_tokens_alone():
    log_ratio_B = torch.linspace(-3, 3, 13, dtype=torch.float64)
    got = dual_clipped_policy_loss(log_ratio_B, torch.ones_like(log_ratio_B), **CLIP, dual_clip=3.0)
    torch.testing.assert_close(got, clipped_policy_loss(log_ratio_B, torch.ones_like(log_ratio_B), **CLIP))


@pytest.mark.parametrize("dual_clip", [1.0, 0.5, math.nan])
def test_a_dual_clip_that_would_bind_on_policy_is_refused(dual_clip: float):
    with pytest.raises(ValueError, match="must exceed 1"):
        dual_clipped_policy_loss(_double(0.0), _double(1.0), **CLIP, dual_clip=dual_clip)


def test_clips_are_apart():
    # clip-higher lets a good token grow to 1.28; the lower side stays at 0.8
    got = clipped_policy_loss(_double(1.5, 0.5).log(), _double(1, -1), **DAPO_CLIP)
    torch.testing.assert_close(got, _double(-1.28, 0.8), **ROUNDING)


ON_POLICY = {
    "reinforce": lambda logprob, ratio, advantage, mask: reinforce_loss(logprob, advantage, mask),
    "ppo": lambda logprob, ratio, advantage, mask: clipped_policy_loss(ratio, advantage, **CLIP),
    "dual": lambda logprob, ratio, advantage, mask: dual_clipped_policy_loss(ratio, advantage, **CLIP, dual_clip=3.0),
    "cispo": lambda logprob, ratio, advantage, mask: cispo_loss(logprob, ratio, advantage, mask, ratio_max=5.0),
    "gspo-token": lambda logprob, ratio, advantage, mask: clipped_policy_loss(
        sequence_token_log_ratio(ratio, mask), advantage, **CLIP
    ),
}


@pytest.mark.parametrize("name", ON_POLICY)
def test_where_the_policy_has_not_moved_the_gradient_is_the_policy_gradient(name: str):
    logprob_BT, advantage_BT, mask_BT = _batch()
    ratio_BT = log_ratio(logprob_BT, logprob_BT.detach(), mask_BT)
    weight_BT = token_mean(mask_BT, StepCounts.of(mask_BT))
    weighted_sum(ON_POLICY[name](logprob_BT, ratio_BT, advantage_BT, mask_BT), weight_BT).backward()
    torch.testing.assert_close(logprob_BT.grad, -advantage_BT * weight_BT, **ROUNDING)


def test_gspo_on_policy_is_the_policy_gradient_of_each_sequence():
    # the sequence's ratio moves with the mean of its log-probs, so under a per-sequence mean the gradients agree
    logprob_BT, advantage_BT, mask_BT = _batch()
    ratio_BT = sequence_log_ratio(log_ratio(logprob_BT, logprob_BT.detach(), mask_BT), mask_BT)
    weight_BT = seq_mean_token_mean(mask_BT, StepCounts.of(mask_BT))
    weighted_sum(clipped_policy_loss(ratio_BT, advantage_BT, **CLIP), weight_BT).backward()
    torch.testing.assert_close(logprob_BT.grad, -advantage_BT * weight_BT, **ROUNDING)


def test_the_on_policy_loss_is_minus_the_mean_advantage():
    logprob_BT, advantage_BT, mask_BT = _batch()
    ratio_BT = log_ratio(logprob_BT, logprob_BT.detach(), mask_BT)
    loss = weighted_sum(
        clipped_policy_loss(ratio_BT, advantage_BT, **CLIP), token_mean(mask_BT, StepCounts.of(mask_BT))
    )
    assert loss.item() == pytest.approx(-advantage_BT[mask_BT].mean().item(), abs=1e-14)


def test_zero_advantage_gives_exactly_no_gradient():
    logprob_BT, advantage_BT, mask_BT = _batch()
    ratio_BT = log_ratio(logprob_BT, logprob_BT.detach() - 0.5, mask_BT)
    clipped_policy_loss(ratio_BT, torch.zeros_like(advantage_BT), **CLIP).sum().backward()
    assert logprob_BT.grad is not None
    assert (logprob_BT.grad == 0).all()


def test_gspo_ratio_is_the_geometric_mean_of_the_token_ratios():
    mask_BT = torch.tensor([[True, True, True, False]])
    ratio_BT = torch.tensor([[2.0, 4.0, 1.0, 1.0]], dtype=torch.float64)
    got = sequence_log_ratio(ratio_BT.log(), mask_BT)
    torch.testing.assert_close(got[0, :3].exp(), torch.full((3,), 2.0, dtype=torch.float64))
    assert got[0, 3] == 0


def test_gspo_token_has_the_value_of_gspo():
    logprob_BT, _, mask_BT = _batch()
    ratio_BT = log_ratio(logprob_BT, torch.zeros_like(logprob_BT), mask_BT)
    torch.testing.assert_close(
        sequence_token_log_ratio(ratio_BT, mask_BT), sequence_log_ratio(ratio_BT, mask_BT), **ROUNDING
    )


def test_cispo_keeps_a_gradient_where_ppo_has_none():
    logprob_B = _double(-1.0).requires_grad_()
    ratio_B = logprob_B - _double(-1.0 - math.log(9))
    cispo_loss(logprob_B, ratio_B, _double(2.0), torch.tensor([True]), ratio_max=5.0).backward()
    assert logprob_B.grad is not None
    assert logprob_B.grad.item() == pytest.approx(-10.0)  # −ε_max·Â, not through ρ


def test_clip_flags_mark_exactly_the_tokens_without_gradient():
    log_ratio_B = torch.linspace(-1, 1, 41, dtype=torch.float64).repeat(2).requires_grad_()
    advantage_B = torch.tensor([1.0, -1.0], dtype=torch.float64).repeat_interleave(41)
    clipped_policy_loss(log_ratio_B, advantage_B, **DAPO_CLIP).sum().backward()
    high_B = is_clipped_high(log_ratio_B, advantage_B, clip_high=0.28)
    low_B = is_clipped_low(log_ratio_B, advantage_B, clip_low=0.2)
    assert log_ratio_B.grad is not None
    assert torch.equal(high_B | low_B, log_ratio_B.grad == 0)
    assert (advantage_B[high_B] > 0).all()
    assert (advantage_B[low_B] < 0).all()


@pytest.mark.parametrize("advantage", [1.0, -1.0, 0.0])
@pytest.mark.parametrize("gap", [-1000.0, -100.0, 100.0, 1000.0])
def test_a_huge_log_ratio_gives_no_nan(gap: float, advantage: float):
    logprob_B = torch.tensor([gap], requires_grad=True)
    loss_B = clipped_policy_loss(logprob_B, torch.tensor([advantage]), **CLIP)
    loss_B.backward()
    assert loss_B.isfinite().all()
    assert logprob_B.grad is not None
    assert logprob_B.grad.isfinite().all()


def test_nan_in_a_masked_slot_poisons_nothing():
    # public report R321: old log-probs [0, NaN], mask [1, 0]
    logprob_BT = torch.tensor([[0.0, 0.0]], requires_grad=True)
    mask_BT = torch.tensor([[True, False]])
    ratio_BT = log_ratio(logprob_BT, torch.tensor([[0.0, math.nan]]), mask_BT)
    advantage_BT = torch.tensor([[1.0, math.nan]])
    loss = weighted_sum(
        clipped_policy_loss(ratio_BT, advantage_BT, **CLIP), token_mean(mask_BT, StepCounts.of(mask_BT))
    )
    loss.backward()
    assert loss.item() == -1
    assert logprob_BT.grad is not None
    assert logprob_BT.grad.tolist() == [[-1, 0]]


def test_sft_is_the_mean_over_completion_tokens():
    logprob_BT = torch.tensor([[-5.0, -1.0, -2.0], [-5.0, -3.0, math.nan]], requires_grad=True)
    mask_BT = torch.tensor([[False, True, True], [False, True, False]])
    loss = weighted_sum(negative_log_likelihood(logprob_BT, mask_BT), token_mean(mask_BT, StepCounts.of(mask_BT)))
    loss.backward()
    assert loss.item() == pytest.approx(2.0)  # 6 nats over 3 tokens
    assert logprob_BT.grad is not None
    torch.testing.assert_close(logprob_BT.grad, mask_BT / -3)


def test_truncated_weights_are_capped_and_constant():
    weight_B = truncated_weights(_double(0.5, 1, 3).log().requires_grad_(), high=2.0)
    torch.testing.assert_close(weight_B, _double(0.5, 1, 2), **ROUNDING)
    assert not weight_B.requires_grad
    torch.testing.assert_close(truncated_weights(_double(0.1, 9).log(), low=0.5, high=5.0), _double(0.5, 5), **ROUNDING)


def test_icepop_drops_tokens_outside_its_band():
    got = icepop_weights(_double(0.4, 0.6, 1, 4.9, 5.1).log(), low=0.5, high=5.0)
    torch.testing.assert_close(got, _double(0, 0.6, 1, 4.9, 0), **ROUNDING)


def test_sequence_weights_are_the_product_and_drop_whole_sequences():
    # products 2 and 4: the second exceeds 3; padding does not count
    weight_BT = torch.tensor([[2.0, 1.0, 50.0], [2.0, 2.0, 1.0]], dtype=torch.float64)
    mask_BT = torch.tensor([[True, True, False], [True, True, True]])
    got = sequence_masked_weights(weight_BT.log(), mask_BT, high=3.0)
    torch.testing.assert_close(got, _double(2, 0)[:, None].expand(2, 3), **ROUNDING)


def test_geometric_weights_judge_the_mean_and_keep_the_tokens_own():
    weight_BT = torch.tensor([[4.0, 0.25], [9.0, 4.0]], dtype=torch.float64)
    mask_BT = torch.ones(2, 2, dtype=torch.bool)
    got = geometric_masked_weights(weight_BT.log(), mask_BT, low=0.5, high=5.0)  # means 1 and 6
    torch.testing.assert_close(got, torch.tensor([[4.0, 0.25], [0, 0]], dtype=torch.float64), **ROUNDING)


def test_small_noise_over_a_long_answer_leaves_the_sequence_cap_but_not_the_geometric_one():
    # public report R088: N(0, 0.05) a token over 500 tokens sums to N(0, 1.1), and e to that exceeds 3 in one of six
    torch.manual_seed(0)
    noise_BT, mask_BT = 0.05 * torch.randn(200, 500, dtype=torch.float64), torch.ones(200, 500, dtype=torch.bool)
    dropped = (sequence_masked_weights(noise_BT, mask_BT, high=3.0)[:, 0] == 0).double().mean().item()
    assert 0.08 < dropped < 0.25
    assert (geometric_masked_weights(noise_BT, mask_BT, low=0.5, high=5.0) > 0).all()


def test_gradcheck():
    torch.manual_seed(0)
    # away from the corners, where no derivative exists
    log_ratio_BT = torch.tensor([[-0.5, -0.1, 0.1, 0.5, 1.3]] * 2, dtype=torch.float64, requires_grad=True)
    advantage_BT = torch.tensor([[1.0], [-1.0]], dtype=torch.float64).expand(2, 5)
    mask_BT = torch.arange(5) < torch.tensor([[5], [3]])
    assert torch.autograd.gradcheck(lambda r: clipped_policy_loss(r, advantage_BT, **DAPO_CLIP), log_ratio_BT)
    assert torch.autograd.gradcheck(
        lambda r: dual_clipped_policy_loss(r, advantage_BT, **DAPO_CLIP, dual_clip=3.0), log_ratio_BT
    )
    assert torch.autograd.gradcheck(
        lambda r: clipped_policy_loss(sequence_log_ratio(r, mask_BT), advantage_BT, **DAPO_CLIP), log_ratio_BT
    )
    assert torch.autograd.gradcheck(lambda r: reinforce_loss(r, advantage_BT, mask_BT), log_ratio_BT)
