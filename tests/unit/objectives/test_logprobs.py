"""Are the log-probs those of the softmax, and does the chunked head give the same numbers and gradients?

Shape letters: N tokens · H hidden · V vocabulary · B sequences · T tokens.
"""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from headcount.objectives.logprobs import (
    linear_token_logprobs,
    linear_token_logprobs_and_entropy,
    linear_weighted_logprob,
    log_ratio,
    mean_logprob,
    sequence_logprob,
    token_entropy,
    token_logprobs,
)

SUMS_IN_ANOTHER_ORDER = {"rtol": 1e-12, "atol": 1e-13}  # float64, some hundred terms


def _head(n: int = 7, h: int = 5, v: int = 11, seed: int = 0, dtype: torch.dtype = torch.float64):
    torch.manual_seed(seed)
    hidden_NH = torch.randn(n, h, dtype=dtype).requires_grad_()
    head_VH = torch.randn(v, h, dtype=dtype).requires_grad_()
    bias_V = torch.randn(v, dtype=dtype).requires_grad_()
    return hidden_NH, head_VH, bias_V, torch.randint(v, (n,))


def test_three_tokens_by_hand():
    # p = 1/2, 1/4, 1/4
    logits_V = torch.tensor([math.log(2), 0.0, 0.0], dtype=torch.float64)
    got = token_logprobs(logits_V.expand(3, 3), torch.arange(3)).exp()
    torch.testing.assert_close(got, torch.tensor([0.5, 0.25, 0.25], dtype=torch.float64))
    assert token_entropy(logits_V).item() == pytest.approx(1.5 * math.log(2), abs=1e-15)


def test_temperature_is_that_of_the_sampling_distribution():
    # at τ = ½ the odds are squared: 4 : 1 : 1
    logits_V = torch.tensor([math.log(2), 0.0, 0.0], dtype=torch.float64)
    assert token_logprobs(logits_V, torch.tensor(0), temperature=0.5).exp().item() == pytest.approx(4 / 6, abs=1e-15)


@pytest.mark.parametrize("temperature", [0.0, -1.0, math.nan])
def test_a_temperature_without_a_softmax_is_refused(temperature: float):
    hidden_NH, head_VH, _, token_N = _head()
    for call in (
        lambda: token_logprobs(hidden_NH, token_N % 5, temperature=temperature),
        lambda: token_entropy(hidden_NH, temperature=temperature),
        lambda: linear_token_logprobs(hidden_NH, head_VH, token_N, temperature=temperature),
    ):
        with pytest.raises(ValueError, match="has no log-probs"):
            call()


def test_adding_a_constant_to_all_logits_changes_nothing():
    torch.manual_seed(0)
    logits_NV, token_N = torch.randn(6, 9, dtype=torch.float64), torch.randint(9, (6,))
    shifted_NV = logits_NV + 100
    tolerance = {"rtol": 0.0, "atol": 1e-12}  # 100 has 13 digits left after the point
    torch.testing.assert_close(token_logprobs(shifted_NV, token_N), token_logprobs(logits_NV, token_N), **tolerance)
    torch.testing.assert_close(token_entropy(shifted_NV), token_entropy(logits_NV), **tolerance)


def test_probabilities_sum_to_one_and_a_forbidden_token_has_none():
    torch.manual_seed(0)
    logits_V = torch.randn(9, dtype=torch.float64)
    logits_V[4] = -math.inf
    logprob_V = token_logprobs(logits_V.expand(9, 9), torch.arange(9))
    assert logprob_V.exp().sum().item() == pytest.approx(1, abs=1e-14)
    assert logprob_V[4] == -math.inf


def test_entropy_with_a_forbidden_token_is_that_of_the_others_in_value_and_gradient():
    torch.manual_seed(0)
    few_V = torch.randn(5, dtype=torch.float64, requires_grad=True)
    many_V = torch.cat([few_V.detach(), torch.tensor([-math.inf], dtype=torch.float64)]).requires_grad_()
    token_entropy(few_V).backward()
    token_entropy(many_V).backward()
    torch.testing.assert_close(token_entropy(many_V), token_entropy(few_V))
    assert few_V.grad is not None
    assert many_V.grad is not None
    torch.testing.assert_close(many_V.grad, torch.cat([few_V.grad, few_V.grad.new_zeros(1)]))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_logits_give_float32_log_probs(dtype: torch.dtype):
    torch.manual_seed(0)
    logits_NV, token_N = (3 * torch.randn(5, 300)).to(dtype), torch.randint(300, (5,))
    got_N = token_logprobs(logits_NV, token_N)
    assert got_N.dtype == torch.float32
    # the logits are what they are; their log-softmax is right to float32 (300 terms)
    exact_N = torch.log_softmax(logits_NV.double(), dim=-1).gather(-1, token_N[:, None]).squeeze(-1)
    torch.testing.assert_close(got_N.double(), exact_N, rtol=1e-6, atol=1e-6)


@settings(deadline=None, max_examples=40)
@given(
    n=st.integers(0, 9),
    v=st.integers(2, 13),
    chunk=st.integers(1, 10),
    temperature=st.sampled_from([0.6, 1.0, 1.7]),
    seed=st.integers(0, 99),
)
def test_the_chunked_head_equals_the_naive_one_in_value_and_gradient(n, v, chunk, temperature, seed):
    hidden_NH, head_VH, bias_V, token_N = _head(n=n, v=v, seed=seed)
    coefficient_N = torch.randn(2, n, dtype=torch.float64)

    def naive():
        logits_NV = (hidden_NH @ head_VH.T + bias_V) / temperature
        logprob_NV = torch.log_softmax(logits_NV, dim=-1)
        entropy_N = -(logprob_NV.exp() * logprob_NV).sum(dim=-1)
        return logprob_NV.gather(-1, token_N[:, None]).squeeze(-1), entropy_N

    results = []
    for logprob_N, entropy_N in (
        naive(),
        linear_token_logprobs_and_entropy(
            hidden_NH, head_VH, token_N, bias_V=bias_V, temperature=temperature, chunk_tokens=chunk
        ),
    ):
        total = (coefficient_N[0] * logprob_N + coefficient_N[1] * entropy_N).sum()
        results.append([logprob_N, entropy_N, *torch.autograd.grad(total, [hidden_NH, head_VH, bias_V])])
    for got, expected in zip(results[1], results[0], strict=True):
        torch.testing.assert_close(got, expected, **SUMS_IN_ANOTHER_ORDER)


@pytest.mark.parametrize("weights", [[1.0, -2.0, 0.0, 0.5, 0.25, -0.1, 3.0]])
def test_gradients_made_in_the_forward_pass_are_those_of_backward(weights: list[float]):
    hidden_NH, head_VH, bias_V, token_N = _head()
    weight_N = torch.tensor(weights, dtype=torch.float64)
    options = {"bias_V": bias_V, "temperature": 0.7, "chunk_tokens": 3}
    logprob_N = linear_token_logprobs(hidden_NH, head_VH, token_N, **options)
    total, fused_logprob_N = linear_weighted_logprob(hidden_NH, head_VH, token_N, weight_N, **options)
    assert not fused_logprob_N.requires_grad
    torch.testing.assert_close(fused_logprob_N, logprob_N.detach(), rtol=0, atol=0)  # the same arithmetic
    parameters = [hidden_NH, head_VH, bias_V]
    expected = torch.autograd.grad(-3 * (weight_N * logprob_N).sum(), parameters)
    for got, wanted in zip(torch.autograd.grad(-3 * total, parameters), expected, strict=True):
        torch.testing.assert_close(got, wanted, **SUMS_IN_ANOTHER_ORDER)


def test_the_fused_head_says_when_it_is_differentiated_twice():
    hidden_NH, head_VH, _, token_N = _head()
    total, _ = linear_weighted_logprob(hidden_NH, head_VH, token_N, torch.ones(7))
    total.backward(retain_graph=True)
    with pytest.raises(RuntimeError, match="differentiated twice"):
        total.backward()


def test_gradcheck_of_the_chunked_head():
    hidden_NH, head_VH, bias_V, token_N = _head(n=5, h=3, v=6)

    def both(hidden_NH, head_VH, bias_V):
        return linear_token_logprobs_and_entropy(
            hidden_NH, head_VH, token_N, bias_V=bias_V, temperature=1.3, chunk_tokens=2
        )

    assert torch.autograd.gradcheck(both, (hidden_NH, head_VH, bias_V))
    assert torch.autograd.gradcheck(
        lambda hidden_NH: linear_token_logprobs(hidden_NH, head_VH.detach(), token_N, chunk_tokens=2), (hidden_NH,)
    )


def test_gradcheck_of_plain_log_probs_and_entropy():
    torch.manual_seed(0)
    logits_NV, token_N = torch.randn(4, 6, dtype=torch.float64, requires_grad=True), torch.randint(6, (4,))
    assert torch.autograd.gradcheck(
        lambda z: (token_logprobs(z, token_N, temperature=0.8), token_entropy(z)), logits_NV
    )


def test_a_bias_of_minus_infinity_forbids_a_token_in_training_too():
    hidden_NH, head_VH, _, token_N = _head()
    kept_V = torch.arange(11) != 10
    bias_V = torch.where(kept_V, 0.0, -math.inf).double()
    token_N = token_N % 10
    got = linear_token_logprobs_and_entropy(hidden_NH, head_VH, token_N, bias_V=bias_V, chunk_tokens=3)
    expected = linear_token_logprobs_and_entropy(hidden_NH, head_VH[:10], token_N)
    for one, other in zip(got, expected, strict=True):
        torch.testing.assert_close(one, other, **SUMS_IN_ANOTHER_ORDER)
    got_gradients = torch.autograd.grad(got[0].sum() + got[1].sum(), [hidden_NH, head_VH])
    expected_gradients = torch.autograd.grad(expected[0].sum() + expected[1].sum(), [hidden_NH, head_VH])
    for one, other in zip(got_gradients, expected_gradients, strict=True):
        torch.testing.assert_close(one, other, **SUMS_IN_ANOTHER_ORDER)


def test_bf16_head_gradients_do_not_lose_small_chunks():
    # 4,096 equal contributions: summed in bf16 (8 bits) they would stop growing at 256 of them
    hidden_NH = torch.ones(4096, 1, dtype=torch.bfloat16)
    head_VH = torch.zeros(2, 1, dtype=torch.bfloat16, requires_grad=True)
    token_N = torch.zeros(4096, dtype=torch.long)
    linear_token_logprobs(hidden_NH, head_VH, token_N, chunk_tokens=1).sum().backward()
    assert head_VH.grad is not None
    assert head_VH.grad.flatten().tolist() == [2048.0, -2048.0]  # Σ (1 − p), p = ½, exact in bf16


def test_under_autocast_forward_and_backward_run_in_its_dtype():
    hidden_NH, head_VH, _, token_N = _head(dtype=torch.float32)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        inside_N = linear_token_logprobs(hidden_NH, head_VH, token_N, chunk_tokens=3)
    inside = torch.autograd.grad(inside_N.sum(), [hidden_NH, head_VH])
    outside_N = linear_token_logprobs(hidden_NH.bfloat16(), head_VH.bfloat16(), token_N, chunk_tokens=3)
    outside = torch.autograd.grad(outside_N.sum(), [hidden_NH, head_VH])
    assert inside[0].dtype == torch.float32
    torch.testing.assert_close(inside_N, outside_N, rtol=0, atol=0)
    for one, other in zip(inside, outside, strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=0)


@pytest.mark.parametrize("call", ["logprobs", "entropy", "weighted"])
def test_the_whole_logits_are_never_held(call: str):
    n, h, v, chunk = 512, 8, 1000, 16
    hidden_NH, head_VH, _, token_N = _head(n=n, h=h, v=v, dtype=torch.float32)
    biggest = 0

    class Watch(torch.utils._python_dispatch.TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            nonlocal biggest
            result = func(*args, **(kwargs or {}))
            for part in result if isinstance(result, tuple | list) else [result]:
                if isinstance(part, torch.Tensor):
                    biggest = max(biggest, part.numel())
            return result

    def loss() -> torch.Tensor:
        if call == "weighted":
            return linear_weighted_logprob(hidden_NH, head_VH, token_N, torch.ones(n), chunk_tokens=chunk)[0]
        if call == "entropy":
            return sum(linear_token_logprobs_and_entropy(hidden_NH, head_VH, token_N, chunk_tokens=chunk)).sum()
        return linear_token_logprobs(hidden_NH, head_VH, token_N, chunk_tokens=chunk).sum()

    with Watch():
        loss().backward()
    assert biggest == max(chunk * v, v * h, n * h)  # a chunk of logits, 1/32 of them all


def test_scoring_without_gradients_makes_none():
    hidden_NH, head_VH, _, token_N = _head()
    with torch.no_grad():
        total, _ = linear_weighted_logprob(hidden_NH, head_VH, token_N, torch.ones(7))
        logprob_N = linear_token_logprobs(hidden_NH, head_VH, token_N)
    assert not total.requires_grad
    assert not logprob_N.requires_grad


def test_tokens_in_rows_are_refused_by_the_linear_head():
    hidden_NH, head_VH, _, token_N = _head(n=6)
    with pytest.raises(ValueError, match="flat tokens"):
        linear_token_logprobs(hidden_NH, head_VH, token_N.view(2, 3))
    with pytest.raises(ValueError, match="at least one"):
        linear_token_logprobs(hidden_NH, head_VH, token_N, chunk_tokens=0)


def test_log_ratio_stops_what_stands_outside_the_mask():
    # public report R321
    logprob_BT = torch.tensor([[-1.0, -2.0]], requires_grad=True)
    old_BT = torch.tensor([[-1.5, math.nan]])
    ratio_BT = log_ratio(logprob_BT, old_BT, torch.tensor([[True, False]])).exp()
    ratio_BT.sum().backward()
    assert ratio_BT.tolist() == [[pytest.approx(math.exp(0.5)), 1.0]]
    assert logprob_BT.grad is not None
    assert logprob_BT.grad.tolist() == [[pytest.approx(math.exp(0.5)), 0.0]]


def test_a_ratio_of_bf16_log_probs_is_taken_in_float32():
    mask_BT = torch.ones(1, 1, dtype=torch.bool)
    one = torch.tensor([[-8.0]], dtype=torch.bfloat16)
    assert log_ratio(one, torch.tensor([[-8.001]]), mask_BT).item() == pytest.approx(0.001, rel=1e-3)


def test_sequence_log_probs_count_completion_tokens_only():
    logprob_BT = torch.tensor([[-9.0, -1.0, -3.0, math.nan], [-9.0, -9.0, -5.0, math.nan]])
    mask_BT = torch.tensor([[False, True, True, False], [False, False, True, False]])
    assert sequence_logprob(logprob_BT, mask_BT).tolist() == [-4.0, -5.0]
    assert mean_logprob(logprob_BT, mask_BT).tolist() == [-2.0, -5.0]
