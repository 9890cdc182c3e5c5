"""Does the critic's loss clip where it says?

Shape letters: B sequences · T tokens.
"""

from __future__ import annotations

import math

import pytest
import torch

from headcount.objectives.value_loss import clipped_value_loss, explained_variance, is_value_clipped, value_loss


def _row(*numbers: float) -> torch.Tensor:
    return torch.tensor([numbers], dtype=torch.float64)


YES = torch.ones(1, 1, dtype=torch.bool)


@pytest.mark.parametrize(
    ("value", "old", "target", "expected", "slope", "clipped"),
    [
        # training.md §4: max(0.1², (0.7 − 0.9)²)/2; the clipped branch has no gradient
        (1.0, 0.5, 0.9, 0.02, 0.0, True),
        # 0.4²/2, inside the clip
        (0.6, 0.5, 1.0, 0.08, -0.4, False),
        # moved away from the target: the plain branch is the larger and pulls back
        (1.0, 0.5, 0.2, 0.32, 0.8, False),
    ],
)
def test_clipped_value_vectors(value, old, target, expected, slope, clipped):
    value_BT = _row(value).requires_grad_()
    loss_BT = clipped_value_loss(value_BT, _row(old), _row(target), YES, clip=0.2)
    loss_BT.sum().backward()
    assert loss_BT.item() == pytest.approx(expected, abs=1e-15)
    assert value_BT.grad is not None
    assert value_BT.grad.item() == pytest.approx(slope, abs=1e-15)
    assert is_value_clipped(_row(value), _row(old), _row(target), YES, clip=0.2).item() is clipped


def test_the_plain_loss_is_half_the_square():
    assert value_loss(_row(1.5), _row(1.0), YES).item() == 0.125


def test_on_policy_the_clip_changes_neither_value_nor_gradient():
    torch.manual_seed(0)
    value_BT, target_BT = torch.randn(2, 3, 4, dtype=torch.float64)
    mask_BT = torch.rand(3, 4) > 0.3
    results = []
    for loss in (
        lambda v: value_loss(v, target_BT, mask_BT),
        lambda v: clipped_value_loss(v, value_BT, target_BT, mask_BT, clip=0.2),
    ):
        leaf_BT = value_BT.clone().requires_grad_()
        loss(leaf_BT).sum().backward()
        results.append((loss(leaf_BT).detach(), leaf_BT.grad))
    torch.testing.assert_close(results[0], results[1], rtol=1e-14, atol=0)
    torch.testing.assert_close(results[0][1], torch.where(mask_BT, value_BT - target_BT, 0.0))


def test_nan_in_padding_reaches_neither_value_nor_gradient():
    value_BT = _row(1.0, math.nan).requires_grad_()
    mask_BT = torch.tensor([[True, False]])
    junk_BT = _row(0.9, math.nan)
    for loss_BT in (
        value_loss(value_BT, junk_BT, mask_BT),
        clipped_value_loss(value_BT, junk_BT, junk_BT, mask_BT, clip=0.2),
    ):
        (gradient,) = torch.autograd.grad(loss_BT.sum(), value_BT)
        assert loss_BT[0, 1] == 0
        assert gradient[0].tolist() == [pytest.approx(0.1), 0]


def test_flags_mark_exactly_the_values_without_gradient():
    torch.manual_seed(0)
    value_BT = torch.randn(20, 20, dtype=torch.float64, requires_grad=True)
    old_BT, target_BT = torch.randn(2, 20, 20, dtype=torch.float64)
    mask_BT = torch.ones(20, 20, dtype=torch.bool)
    clipped_value_loss(value_BT, old_BT, target_BT, mask_BT, clip=0.3).sum().backward()
    assert value_BT.grad is not None
    assert torch.equal(is_value_clipped(value_BT, old_BT, target_BT, mask_BT, clip=0.3), value_BT.grad == 0)
    assert (value_BT.grad == 0).any()


def test_explained_variance_of_perfect_constant_and_opposite_values():
    target_BT, mask_BT = _row(1, 2, 3, 99), torch.tensor([[True, True, True, False]])
    assert explained_variance(target_BT + 5, target_BT, mask_BT) == pytest.approx(1)  # a shift is variance explained
    assert explained_variance(_row(7, 7, 7, 0), target_BT, mask_BT) == pytest.approx(0)
    assert explained_variance(-target_BT, target_BT, mask_BT) == pytest.approx(-3)
    assert math.isnan(explained_variance(target_BT, _row(1, 1, 1, 1), mask_BT))


def test_gradcheck():
    torch.manual_seed(0)
    value_BT = torch.randn(3, 4, dtype=torch.float64, requires_grad=True)
    old_BT, target_BT = torch.randn(2, 3, 4, dtype=torch.float64)
    mask_BT = torch.rand(3, 4) > 0.3
    assert torch.autograd.gradcheck(lambda v: value_loss(v, target_BT, mask_BT), value_BT)
    assert torch.autograd.gradcheck(lambda v: clipped_value_loss(v, old_BT, target_BT, mask_BT, clip=0.3), value_BT)
