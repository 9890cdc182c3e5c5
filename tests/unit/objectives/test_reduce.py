"""Is every loss divided by what its name says, whatever the padding and the split?

Shape letters: B sequences · T tokens.
"""

from __future__ import annotations

import itertools
import math

import pytest
import torch

from headcount.objectives.policy_loss import clipped_policy_loss, negative_log_likelihood
from headcount.objectives.reduce import (
    AGGREGATIONS,
    StepCounts,
    kept,
    masked_mean,
    seq_mean_token_mean,
    seq_mean_token_sum,
    seq_mean_token_sum_norm,
    span_mask,
    token_mean,
    weighted_sum,
)
from headcount.objectives.value_loss import clipped_value_loss

NORM_TOKENS = 8
MODES = list(AGGREGATIONS)


def _weights(mode: str, mask_BT: torch.Tensor, step: StepCounts) -> torch.Tensor:
    constant = {"norm_tokens": NORM_TOKENS} if mode.endswith("norm") else {}
    return AGGREGATIONS[mode](mask_BT, step, **constant)


def test_the_names_are_those_of_the_job_file():
    assert MODES == ["token-mean", "seq-mean-token-mean", "seq-mean-token-sum", "seq-mean-token-sum-norm"]


@pytest.mark.parametrize(
    ("mode", "expected"),
    [
        # lengths 2 and 6, loss −1 and +1 per token (advantages +1 and −1 at ratio 1): Σ = 4
        ("token-mean", 4 / 8),
        ("seq-mean-token-mean", 0.0),
        ("seq-mean-token-sum", 4 / 2),
        ("seq-mean-token-sum-norm", 4 / (2 * NORM_TOKENS)),
    ],
)
def test_a_group_of_two_with_lengths_two_and_six(mode: str, expected: float):
    mask_BT = span_mask(torch.tensor([0, 0]), torch.tensor([2, 6]), width=6)
    loss_BT = torch.tensor([[-1.0], [1.0]]).expand(2, 6)
    got = weighted_sum(loss_BT, _weights(mode, mask_BT, StepCounts.of(mask_BT)))
    assert got.item() == pytest.approx(expected, abs=1e-7)  # float32


def test_how_much_a_long_bad_answer_weighs_against_a_short_one():
    # per token, and so in the gradient: equal, 1 : 3 by length, equal, equal
    mask_BT = span_mask(torch.tensor([0, 0]), torch.tensor([2, 6]), width=6)
    step = StepCounts.of(mask_BT)
    shares = {
        mode: (_weights(mode, mask_BT, step)[1, 0] / _weights(mode, mask_BT, step)[0, 0]).item() for mode in MODES
    }
    assert shares == pytest.approx(
        {"token-mean": 1, "seq-mean-token-mean": 1 / 3, "seq-mean-token-sum": 1, "seq-mean-token-sum-norm": 1}
    )


def _rows(lengths: list[int], seed: int = 0) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    torch.manual_seed(seed)
    width = max(lengths)
    logprob_BT = -torch.rand(len(lengths), width, dtype=torch.float64)
    advantage_BT = torch.randn(len(lengths), 1, dtype=torch.float64).expand(-1, width)
    return (
        logprob_BT,
        advantage_BT,
        span_mask(torch.zeros(len(lengths), dtype=torch.long), torch.tensor(lengths), width=width),
    )


def _policy_terms(logprob_BT, advantage_BT, mask_BT):
    old_BT = logprob_BT.detach() - 0.1
    loss_BT = clipped_policy_loss(kept(logprob_BT - old_BT, mask_BT), advantage_BT, clip_low=0.2, clip_high=0.28)
    return loss_BT + negative_log_likelihood(logprob_BT, mask_BT)


def _value_terms(value_BT, target_BT, mask_BT):
    return clipped_value_loss(value_BT, value_BT.detach() + 0.3, target_BT, mask_BT, clip=0.2)


@pytest.mark.parametrize("terms", [_policy_terms, _value_terms])
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("split", [[4], [1, 3], [2, 2], [1, 1, 1, 1], [3, 1]])
def test_any_split_of_a_step_gives_the_same_gradient(terms, mode: str, split: list[int]):
    # lengths of public report R074
    logprob_BT, advantage_BT, mask_BT = _rows([1, 2, 3, 10])
    step = sum((StepCounts.of(part) for part in mask_BT.split(split)), StepCounts(tokens=0, sequences=0))

    def gradient(parts: list[int]) -> torch.Tensor:
        leaf_BT = logprob_BT.clone().requires_grad_()
        for part in zip(leaf_BT.split(parts), advantage_BT.split(parts), mask_BT.split(parts), strict=True):
            weighted_sum(terms(*part), _weights(mode, part[2], step)).backward()
        assert leaf_BT.grad is not None
        return leaf_BT.grad

    # one sum per token in both, so equal to the bit
    torch.testing.assert_close(gradient(split), gradient([4]), rtol=0, atol=0)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("fill", [0.0, 7.0, math.nan, math.inf])
@pytest.mark.parametrize("left", [0, 3])
def test_padding_changes_no_loss_and_no_gradient(mode: str, fill: float, left: int):
    logprob_BT, advantage_BT, mask_BT = _rows([2, 5])
    pad = torch.nn.functional.pad

    def loss_and_gradient(before: int, after: int):
        leaf_BT = pad(logprob_BT, (before, after), value=fill).requires_grad_()
        wide_mask_BT = pad(mask_BT, (before, after), value=False)
        terms_BT = _policy_terms(leaf_BT, pad(advantage_BT, (before, after), value=fill), wide_mask_BT)
        loss = weighted_sum(terms_BT, _weights(mode, wide_mask_BT, StepCounts.of(wide_mask_BT)))
        loss.backward()
        assert leaf_BT.grad is not None
        return loss.detach(), leaf_BT.grad[:, before : before + 5], leaf_BT.grad

    plain, plain_gradient, _ = loss_and_gradient(0, 0)
    padded, padded_gradient, whole = loss_and_gradient(left, 4)
    torch.testing.assert_close(padded, plain, rtol=1e-15, atol=1e-15)  # the sum may run in another order
    torch.testing.assert_close(padded_gradient, plain_gradient, rtol=0, atol=0)
    assert (whole[:, :left] == 0).all()
    assert (whole[:, left + 5 :] == 0).all()


def test_batch_order_does_not_matter():
    logprob_BT, advantage_BT, mask_BT = _rows([3, 1, 4])
    losses = []
    for order in itertools.permutations(range(3)):
        rows = list(order)
        weight_BT = seq_mean_token_mean(mask_BT[rows], StepCounts.of(mask_BT))
        losses.append(weighted_sum(_policy_terms(logprob_BT[rows], advantage_BT[rows], mask_BT[rows]), weight_BT))
    torch.testing.assert_close(torch.stack(losses), losses[0].expand(6), rtol=1e-14, atol=0)  # order of a sum


@pytest.mark.parametrize("mode", MODES)
def test_a_row_masked_whole_is_in_neither_part_of_the_fraction(mode: str):
    # public report R076: the truncated row must not dilute the others
    logprob_BT, advantage_BT, mask_BT = _rows([2, 3, 3])
    mask_BT[2] = False
    parts = [slice(0, 3), slice(0, 2)]
    with_row, without_row = (
        weighted_sum(
            _policy_terms(logprob_BT[part], advantage_BT[part], mask_BT[part]),
            _weights(mode, mask_BT[part], StepCounts.of(mask_BT[part])),
        )
        for part in parts
    )
    torch.testing.assert_close(with_row, without_row, rtol=1e-15, atol=0)


def test_all_lengths_equal_make_the_means_one():
    logprob_BT, advantage_BT, mask_BT = _rows([4, 4, 4])
    step = StepCounts.of(mask_BT)
    loss_BT = _policy_terms(logprob_BT, advantage_BT, mask_BT)
    means = [
        weighted_sum(loss_BT, weight_BT)
        for weight_BT in (
            token_mean(mask_BT, step),
            seq_mean_token_mean(mask_BT, step),
            seq_mean_token_sum(mask_BT, step) / 4,
            seq_mean_token_sum_norm(mask_BT, step, norm_tokens=4),
        )
    ]
    torch.testing.assert_close(torch.stack(means), loss_BT.mean().expand(4), rtol=1e-14, atol=0)


@pytest.mark.parametrize("mode", MODES)
def test_a_step_without_a_counted_token_is_refused(mode: str):
    mask_BT = torch.zeros(2, 3, dtype=torch.bool)
    with pytest.raises(ValueError, match="no token of it is trained on"):
        _weights(mode, mask_BT, StepCounts.of(mask_BT))


@pytest.mark.parametrize("counts", [(3, 4), (-1, 0), (5, 0)])
def test_counts_that_no_mask_can_have_are_refused(counts: tuple[int, int]):
    with pytest.raises(ValueError, match="from the same mask"):
        StepCounts(tokens=counts[0], sequences=counts[1])


def test_span_mask_is_half_open():
    mask_BT = span_mask(torch.tensor([1, 0, 2]), torch.tensor([3, 0, 4]), width=4)
    assert mask_BT.int().tolist() == [[0, 1, 1, 0], [0, 0, 0, 0], [0, 0, 1, 1]]


def test_masked_mean_divides_by_the_tokens_it_sums():
    value_BT = torch.tensor([[1.0, 3.0, 100.0], [math.nan, 5.0, math.nan], [math.nan] * 3])
    mask_BT = torch.tensor([[True, True, False], [False, True, False], [False] * 3])
    assert masked_mean(value_BT, mask_BT).tolist() == [2.0, 5.0, 0.0]


def test_float64_losses_are_divided_in_float64():
    # 1/3 in float32 is 1e-8 off
    mask_BT = torch.ones(1, 3, dtype=torch.bool)
    got = weighted_sum(torch.ones(1, 3, dtype=torch.float64), token_mean(mask_BT, StepCounts.of(mask_BT)))
    assert got.dtype == torch.float64
    assert got.item() == pytest.approx(1.0, abs=1e-15)
