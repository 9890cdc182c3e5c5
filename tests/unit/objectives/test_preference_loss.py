"""Are the preference losses the papers' numbers, with the papers' gradients?

Shape letters: B pairs · P prompts · K ranked answers · T tokens.
"""

from __future__ import annotations

import itertools
import math

import pytest
import torch

from headcount.objectives.logprobs import mean_logprob, sequence_logprob
from headcount.objectives.preference_loss import (
    Agreement,
    agreement,
    bradley_terry_loss,
    centering_penalty,
    conservative_dpo_loss,
    dpo_loss,
    hinge_loss,
    ipo_loss,
    kto_loss,
    kto_reference_point,
    odds_ratio_loss,
    preference_margin,
    ranking_loss,
    robust_dpo_loss,
    simpo_loss,
)

SIX_DECIMALS = 6e-7  # the vectors of training.md §4 are printed to six decimals
LN2 = math.log(2)


def _d(*numbers: float) -> torch.Tensor:
    return torch.tensor(numbers, dtype=torch.float64)


def _sigmoid(x: float) -> float:
    return 1 / (1 + math.exp(-x))


def test_dpo_vector_of_training_md_with_both_gradients():
    chosen_B, rejected_B = _d(-10).requires_grad_(), _d(-12).requires_grad_()
    margin_B = preference_margin(chosen_B, rejected_B, _d(-11), _d(-11.5))
    loss_B = dpo_loss(margin_B, beta=0.1)
    loss_B.sum().backward()
    assert margin_B.item() == 1.5
    assert loss_B.item() == pytest.approx(0.620957, abs=SIX_DECIMALS)
    assert chosen_B.grad is not None
    assert rejected_B.grad is not None
    assert chosen_B.grad.item() == pytest.approx(-0.046257, abs=SIX_DECIMALS)
    assert rejected_B.grad.item() == -chosen_B.grad.item()
    assert conservative_dpo_loss(margin_B, beta=0.1, label_smoothing=0.1).item() == pytest.approx(
        0.635957, abs=SIX_DECIMALS
    )
    assert ipo_loss(margin_B, beta=0.1).item() == pytest.approx(12.25, abs=1e-12)


@pytest.mark.parametrize(
    ("loss", "expected", "slope"),
    # public report R299: margin 6, β 0.1, and no two alike
    [(dpo_loss, 0.437488, -0.0354344), (hinge_loss, 0.4, -0.1), (ipo_loss, 1.0, 2.0)],
)
def test_every_loss_type_has_its_own_number(loss, expected: float, slope: float):
    margin_B = _d(6).requires_grad_()
    loss_B = loss(margin_B, beta=0.1)
    loss_B.sum().backward()
    assert loss_B.item() == pytest.approx(expected, abs=SIX_DECIMALS)
    assert margin_B.grad is not None
    assert margin_B.grad.item() == pytest.approx(slope, abs=SIX_DECIMALS)


def test_at_the_start_every_log_sigmoid_loss_is_ln_two():
    margin_B = preference_margin(*[_d(-3, -4)] * 4)
    for loss_B in (
        dpo_loss(margin_B, beta=0.3),
        conservative_dpo_loss(margin_B, beta=0.3, label_smoothing=0.2),
        robust_dpo_loss(margin_B, beta=0.3, label_smoothing=0.2),
        simpo_loss(_d(-1, -2), _d(-1, -2), beta=2.0, gamma=0.0),
        odds_ratio_loss(_d(-1, -2), _d(-1, -2)),
        bradley_terry_loss(_d(4, 5), _d(4, 5), _d(0, 0)),
    ):
        assert loss_B.tolist() == pytest.approx([LN2, LN2], abs=1e-15)


def test_the_reference_is_a_constant():
    inputs = [_d(-float(i)).requires_grad_() for i in range(4)]
    gradients = torch.autograd.grad(preference_margin(*inputs).sum(), inputs, allow_unused=True)
    assert [g if g is None else g.item() for g in gradients] == [1, -1, None, None]


def test_smoothing_zero_is_dpo():
    margin_B = torch.linspace(-30, 30, 7, dtype=torch.float64)
    for loss in (conservative_dpo_loss, robust_dpo_loss):
        torch.testing.assert_close(loss(margin_B, beta=0.5, label_smoothing=0.0), dpo_loss(margin_B, beta=0.5))


def test_conservative_dpo_is_least_where_the_policy_believes_the_labels_as_far_as_they_go():
    # σ(βh) = 1 − s
    margin_B = _d(math.log(0.9 / 0.1) / 0.5).requires_grad_()
    conservative_dpo_loss(margin_B, beta=0.5, label_smoothing=0.1).sum().backward()
    assert margin_B.grad is not None
    assert margin_B.grad.item() == pytest.approx(0, abs=1e-16)


def test_robust_dpo_is_the_true_loss_in_the_mean_over_flipped_labels():
    margin_B, s = _d(-2, 0.5, 7), 0.2
    observed = [robust_dpo_loss(sign * margin_B, beta=0.4, label_smoothing=s) for sign in (1, -1)]
    torch.testing.assert_close((1 - s) * observed[0] + s * observed[1], dpo_loss(margin_B, beta=0.4))


@pytest.mark.parametrize("share", [-0.1, 0.5, 0.9, math.nan])
@pytest.mark.parametrize("loss", [conservative_dpo_loss, robust_dpo_loss])
def test_labels_that_say_nothing_are_refused(loss, share: float):
    with pytest.raises(ValueError, match="label_smoothing="):
        loss(_d(1), beta=0.1, label_smoothing=share)


def test_ipo_on_sums_and_on_means_are_two_losses():
    # public report R297: lengths 2 and 8, policy log-probs −1 and −0.5 a token, reference −1.5 and −0.75
    mask_BT = torch.arange(8) < torch.tensor([[2], [8]])
    policy_BT, reference_BT = _d(-1, -0.5)[:, None].expand(2, 8), _d(-1.5, -0.75)[:, None].expand(2, 8)
    margins = []
    for total in (sequence_logprob, mean_logprob):
        policy, reference = total(policy_BT, mask_BT), total(reference_BT, mask_BT)
        margins.append(preference_margin(policy[:1], policy[1:], reference[:1], reference[1:]).item())
    assert margins == pytest.approx([1.0 - 2.0, 0.5 - 0.25])
    losses = [ipo_loss(_d(margin), beta=0.5).item() for margin in margins]
    assert losses == pytest.approx([4.0, 0.5625])


def test_no_preference_loss_overflows():
    margin_B = _d(-1e4, 1e4).float().requires_grad_()
    for loss_B in (dpo_loss(margin_B, beta=1.0), bradley_terry_loss(margin_B, torch.zeros(2), torch.zeros(2))):
        (gradient,) = torch.autograd.grad(loss_B.sum(), margin_B)
        assert loss_B.tolist() == [1e4, 0]
        assert gradient.tolist() == [-1, 0]


def test_simpo_by_hand():
    got = simpo_loss(_d(-0.5), _d(-0.7), beta=2.0, gamma=0.5)
    assert got.item() == pytest.approx(-math.log(_sigmoid(2 * 0.2 - 0.5)), abs=1e-15)


def test_orpo_by_hand():
    # p 0.8 and 0.5: odds 4 and 1
    got = odds_ratio_loss(_d(0.8).log(), _d(0.5).log())
    assert got.item() == pytest.approx(-math.log(4 / 5), abs=1e-14)


def test_a_certain_answer_keeps_orpo_finite():
    chosen_B = torch.tensor([0.0], requires_grad=True)
    loss_B = odds_ratio_loss(chosen_B, torch.tensor([-1.0]))
    loss_B.backward()
    assert loss_B.isfinite().all()
    assert chosen_B.grad is not None
    assert chosen_B.grad.isfinite().all()


def test_kto_by_hand():
    # z₀ = max(0, mean(0.2, 0.6)) = 0.4
    z0 = kto_reference_point(_d(0.2, 0.6))
    got = kto_loss(
        _d(2.4, 2.4, 0.4), torch.tensor([True, False, True]), z0, beta=0.5, desirable_weight=1.0, undesirable_weight=1.5
    )
    assert got.tolist() == pytest.approx([1 - _sigmoid(1.0), 1.5 * (1 - _sigmoid(-1.0)), 0.5], abs=1e-15)
    assert kto_reference_point(_d(-3, 1)).item() == 0


def test_kto_pulls_desirable_up_and_undesirable_down_and_not_through_its_reference_point():
    log_ratio_B, mismatched_B = _d(0.3, 0.3).requires_grad_(), _d(0.2).requires_grad_()
    z0 = kto_reference_point(mismatched_B)
    kto_loss(log_ratio_B, torch.tensor([True, False]), z0, beta=0.5).sum().backward()
    assert log_ratio_B.grad is not None
    assert log_ratio_B.grad[0] < 0 < log_ratio_B.grad[1]
    assert mismatched_B.grad is None


@pytest.mark.parametrize(("margin", "expected"), [(0.0, 0.341154), (0.5, 0.513015)])
def test_bradley_terry_vectors_of_training_md(margin: float, expected: float):
    chosen_B = _d(1.2).requires_grad_()
    loss_B = bradley_terry_loss(chosen_B, _d(0.3), _d(margin))
    loss_B.sum().backward()
    assert loss_B.item() == pytest.approx(expected, abs=SIX_DECIMALS)
    assert chosen_B.grad is not None
    assert chosen_B.grad.item() == pytest.approx(-_sigmoid(-(0.9 - margin)), abs=1e-15)


def test_centering_vector_of_training_md():
    assert 0.01 * centering_penalty(_d(1.2), _d(0.3)).item() == pytest.approx(0.0225, abs=1e-15)


def test_a_constant_on_all_scores_changes_bradley_terry_not_at_all_and_centering_settles_it():
    plain = bradley_terry_loss(_d(1.2), _d(0.3), _d(0))
    torch.testing.assert_close(bradley_terry_loss(_d(101.2), _d(100.3), _d(0)), plain, rtol=1e-13, atol=0)
    assert centering_penalty(_d(0.45), _d(-0.45)).item() == 0


def test_a_ranking_of_two_is_a_pair_and_of_four_the_mean_of_six():
    torch.testing.assert_close(ranking_loss(_d(1.2, 0.3)[None]), bradley_terry_loss(_d(1.2), _d(0.3), _d(0)))
    score_PK = torch.tensor([[3.0, 1.0, 2.0, -1.0], [0.0, 0.0, 0.0, 0.0]], dtype=torch.float64)
    pairs = [-math.log(_sigmoid(a - b)) for a, b in itertools.combinations(score_PK[0].tolist(), 2)]
    assert ranking_loss(score_PK).tolist() == pytest.approx([sum(pairs) / 6, LN2], abs=1e-14)


def test_a_ranking_of_one_is_refused():
    with pytest.raises(ValueError, match="make no pair"):
        ranking_loss(_d(1)[None])


def test_accuracy_leaves_ties_out_and_reports_them():
    got = agreement(_d(1, 0, -1, 2)) + agreement(_d(0))
    assert got == Agreement(wins=2, ties=2, pairs=5)
    assert got.accuracy == pytest.approx(2 / 3)
    assert math.isnan(agreement(_d(0, 0)).accuracy)


@pytest.mark.parametrize("fill", [0.0, -7.0, math.nan])
def test_padding_and_prompt_change_no_margin(fill: float):
    # public reports R058 and R323
    torch.manual_seed(0)
    logprob_BT, mask_BT = -torch.rand(4, 3, dtype=torch.float64), torch.arange(3) < torch.tensor([[3], [2], [3], [1]])
    wide_BT = torch.nn.functional.pad(logprob_BT, (5, 4), value=fill)
    wide_mask_BT = torch.nn.functional.pad(mask_BT, (5, 4), value=False)
    for total in (sequence_logprob, mean_logprob):
        narrow_B, wide_B = total(logprob_BT, mask_BT), total(wide_BT, wide_mask_BT)
        torch.testing.assert_close(wide_B, narrow_B, rtol=1e-15, atol=0)
    assert preference_margin(*sequence_logprob(wide_BT, wide_mask_BT)[:, None]).isfinite().all()


def test_gradcheck():
    torch.manual_seed(0)
    inputs = tuple(torch.randn(2, 5, dtype=torch.float64).sub(3).requires_grad_())
    chosen_B, rejected_B = (x.detach().clamp(max=-0.1).requires_grad_() for x in inputs)
    desirable_B = torch.tensor([True, False, True, False, True])
    for loss in (
        lambda w, r: dpo_loss(w - r, beta=0.3),
        lambda w, r: conservative_dpo_loss(w - r, beta=0.3, label_smoothing=0.1),
        lambda w, r: robust_dpo_loss(w - r, beta=0.3, label_smoothing=0.1),
        lambda w, r: ipo_loss(w - r, beta=0.3),
        lambda w, r: hinge_loss(w - r, beta=0.3),
        lambda w, r: simpo_loss(w, r, beta=2.0, gamma=0.5),
        odds_ratio_loss,
        lambda w, r: bradley_terry_loss(w, r, torch.full_like(w, 0.2)),
        centering_penalty,
        lambda w, r: ranking_loss(torch.stack([w, r], dim=-1)),
        lambda w, r: kto_loss(w - r, desirable_B, torch.zeros(()), beta=0.3),
    ):
        assert torch.autograd.gradcheck(loss, (chosen_B, rejected_B))
