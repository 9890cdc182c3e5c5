"""Do the KL estimators have the values, means and gradients that the literature gives them?

Shape letters: V vocabulary · B sequences · T tokens.
"""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from headcount.objectives.kl import KL_ESTIMATORS, adapted_kl_coef, k1, k2, k3, k3_with_k2_gradient, kl_shaped_rewards

SIX_DECIMALS = 6e-7  # the vectors of training.md §4 are printed to six decimals
ROUNDING = {"rtol": 1e-12, "atol": 1e-14}  # float64, a dozen terms


@pytest.mark.parametrize(
    ("logprob", "ref_logprob", "expected"),
    [(-1.0, -1.5, (0.5, 0.125, 0.106531)), (-1.5, -1.0, (-0.5, 0.125, 0.148721))],
)
def test_vectors_of_training_md(logprob: float, ref_logprob: float, expected: tuple[float, ...]):
    d = torch.tensor(logprob - ref_logprob, dtype=torch.float64)
    assert [estimate(d).item() for estimate in (k1, k2, k3)] == pytest.approx(expected, abs=SIX_DECIMALS)
    assert k3_with_k2_gradient(d).item() == pytest.approx(expected[2], abs=SIX_DECIMALS)


def test_gradients_per_token():
    # ∂k1 = 1, ∂k2 = d, ∂k3 = 1 − e^{−d}; k3+ has k2's
    for name, expected in {"k1": 1.0, "k2": 0.5, "k3": 1 - math.exp(-0.5), "k3+": 0.5}.items():
        d = torch.tensor(0.5, dtype=torch.float64, requires_grad=True)
        KL_ESTIMATORS[name](d).backward()
        assert d.grad is not None
        assert d.grad.item() == pytest.approx(expected, abs=1e-15)


def _policies(seed: int = 0):
    torch.manual_seed(seed)
    logits_V = torch.randn(6, dtype=torch.float64, requires_grad=True)
    return (
        logits_V,
        torch.randn(6, dtype=torch.float64).log_softmax(0),
        torch.randn(6, dtype=torch.float64).log_softmax(0),
    )


def _kl(p_V: torch.Tensor, q_V: torch.Tensor) -> torch.Tensor:
    return (p_V.exp() * (p_V - q_V)).sum()


def test_means_under_the_policy_are_the_exact_kl_for_k1_and_k3_but_not_k2():
    logits_V, ref_V, _ = _policies()
    logprob_V = logits_V.log_softmax(0).detach()
    mean = {name: (logprob_V.exp() * estimate(logprob_V - ref_V)).sum() for name, estimate in KL_ESTIMATORS.items()}
    exact = _kl(logprob_V, ref_V)
    for name in ("k1", "k3", "k3+"):
        torch.testing.assert_close(mean[name], exact, **ROUNDING)
    assert abs(mean["k2"] - exact) > 0.02  # 4 % of this pair, far above rounding


def test_mean_gradients_are_nothing_reverse_forward_reverse():
    logits_V, ref_V, _ = _policies()

    def mean_gradient(name: str) -> torch.Tensor:
        logprob_V = logits_V.log_softmax(0)
        # samples are drawn, then differentiated: the probability of drawing has no gradient
        drawn = logprob_V.detach().exp()
        return torch.autograd.grad((drawn * KL_ESTIMATORS[name](logprob_V - ref_V)).sum(), logits_V)[0]

    reverse = torch.autograd.grad(_kl(logits_V.log_softmax(0), ref_V), logits_V)[0]
    forward = torch.autograd.grad(_kl(ref_V, logits_V.log_softmax(0)), logits_V)[0]
    torch.testing.assert_close(mean_gradient("k1"), torch.zeros(6, dtype=torch.float64), **ROUNDING)
    torch.testing.assert_close(mean_gradient("k2"), reverse, **ROUNDING)
    torch.testing.assert_close(mean_gradient("k3+"), reverse, **ROUNDING)
    torch.testing.assert_close(mean_gradient("k3"), forward, **ROUNDING)


def test_k3_times_the_ratio_has_the_reverse_gradient_from_old_samples():
    logits_V, ref_V, old_V = _policies()
    logprob_V = logits_V.log_softmax(0)
    ratio_V = (logprob_V - old_V).exp()
    got = torch.autograd.grad((old_V.exp() * ratio_V * k3(logprob_V - ref_V)).sum(), logits_V)[0]
    expected = torch.autograd.grad(_kl(logits_V.log_softmax(0), ref_V), logits_V)[0]
    torch.testing.assert_close(got, expected, **ROUNDING)


@pytest.mark.parametrize("name", ["k2", "k3", "k3+"])
def test_a_step_down_a_kl_loss_lowers_the_kl(name: str):
    logits_V, ref_V, _ = _policies()
    logprob_V = logits_V.log_softmax(0)
    drawn = logprob_V.detach().exp()
    gradient = torch.autograd.grad((drawn * KL_ESTIMATORS[name](logprob_V - ref_V)).sum(), logits_V)[0]
    assert _kl((logits_V - 0.1 * gradient).log_softmax(0), ref_V) < _kl(logprob_V, ref_V)


@given(st.floats(-19, 30))
def test_k3_is_never_negative_and_is_its_formula(d: float):
    got = k3(torch.tensor(d, dtype=torch.float64)).item()
    assert got >= 0
    assert got == pytest.approx(math.expm1(-d) + d, rel=1e-12, abs=1e-15)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
def test_huge_log_ratios_keep_a_finite_value_and_a_gradient_that_pulls_back(dtype: torch.dtype):
    # public report R082
    d = torch.tensor([-1000.0, -20.0, 0.0, 20.0, 1000.0], dtype=dtype, requires_grad=True)
    value = k3(d)
    value.sum().backward()
    assert d.grad is not None
    assert value.isfinite().all()
    assert d.grad.isfinite().all()
    assert d.grad.sign().tolist() == [-1, -1, 0, 1, 1]


def test_k3_and_its_slope_are_continuous_where_the_tangent_begins():
    d = torch.tensor([-20 - 1e-9, -20.0, -20 + 1e-9], dtype=torch.float64, requires_grad=True)
    value = k3(d)
    (slope,) = torch.autograd.grad(value.sum(), d)
    torch.testing.assert_close(value, value[1].expand(3), rtol=1e-8, atol=0)  # slope · 1e-9
    torch.testing.assert_close(slope, slope[1].expand(3), rtol=1e-8, atol=0)


def test_gradcheck():
    d = torch.tensor([-22.0, -3.0, -0.1, 0.2, 4.0], dtype=torch.float64, requires_grad=True)
    for estimate in (k1, k2):
        assert torch.autograd.gradcheck(estimate, d)
    assert torch.autograd.gradcheck(k3, d[1:].detach().requires_grad_())


def test_rewards_are_a_penalty_per_token_and_the_score_on_the_last():
    # row 0 ends at t = 2; row 1 is padded on the left; NaN in padding is not read
    kl_BT = torch.tensor([[0.5, 0.0, -1.0, math.nan], [math.nan, 2.0, 1.0, 4.0]])
    mask_BT = torch.tensor([[True, True, True, False], [False, True, True, True]])
    got = kl_shaped_rewards(torch.tensor([1.0, -3.0]), kl_BT, mask_BT, kl_coef=0.1)
    torch.testing.assert_close(got, torch.tensor([[-0.05, 0.0, 1.1, 0.0], [0.0, -0.2, -0.1, -3.4]]))


def test_the_kl_in_the_reward_is_a_constant():
    kl_BT = torch.ones(1, 2, requires_grad=True)
    assert not kl_shaped_rewards(torch.ones(1), kl_BT, torch.ones(1, 2, dtype=torch.bool), kl_coef=0.1).requires_grad


def test_a_score_without_a_token_to_carry_it_is_refused():
    with pytest.raises(ValueError, match=r"rows \[1\] have no response token"):
        kl_shaped_rewards(torch.ones(2), torch.zeros(2, 2), torch.tensor([[True, False], [False, False]]), kl_coef=0.1)


def test_the_controller():
    # training.md §4; the error is clipped at 0.2, so twice the target is not worse than 1.2 times
    settings = {"target_kl": 6.0, "sequences": 256, "horizon": 10_000}
    assert adapted_kl_coef(0.2, observed_kl=9.0, **settings) == pytest.approx(0.201024, abs=1e-12)
    assert adapted_kl_coef(0.2, observed_kl=7.2, **settings) == pytest.approx(0.201024, abs=1e-12)
    assert adapted_kl_coef(0.2, observed_kl=6.0, **settings) == 0.2
    assert adapted_kl_coef(0.2, observed_kl=0.0, **settings) == pytest.approx(0.198976, abs=1e-12)


def test_the_controller_refuses_a_kl_that_is_not_a_number():
    with pytest.raises(ValueError, match="needs a finite KL"):
        adapted_kl_coef(0.2, observed_kl=math.nan, target_kl=6.0, sequences=1, horizon=10)
