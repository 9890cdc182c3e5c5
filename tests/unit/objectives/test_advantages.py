"""Are advantages the closed forms, untouched by padding, shifts and answers that could not be scored?

Shape letters: P prompts · G samples per prompt · B sequences · T tokens.
"""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from headcount.objectives.advantages import (
    Moments,
    centered_advantages,
    discounted_returns,
    gae_advantages,
    informative_groups,
    leave_one_out_advantages,
    leave_one_out_standardized_advantages,
    lowered_without_eos,
    overlong_penalty,
    per_token,
    reinforce_plus_plus_advantages,
    replaced_without_eos,
    scaled_to_unit_std,
    standardized_advantages,
    value_targets,
    whitened,
)

SIX_DECIMALS = {"rtol": 0.0, "atol": 6e-7}  # the vectors of training.md §4 are printed to six decimals
GROUP_FUNCTIONS = [
    centered_advantages,
    standardized_advantages,
    leave_one_out_advantages,
    leave_one_out_standardized_advantages,
]


def _row(*numbers: float) -> torch.Tensor:
    return torch.tensor([numbers], dtype=torch.float64)


def _all(reward_PG: torch.Tensor) -> torch.Tensor:
    return torch.ones_like(reward_PG, dtype=torch.bool)


REWARD_BT, VALUE_BT = _row(0, -0.1, 0, 1), _row(0.5, 0.4, 0.6, 0.7)


@pytest.mark.parametrize(
    ("gamma", "gae_lambda", "expected"),
    [
        (1.0, 0.95, (0.342462, 0.465750, 0.385, 0.3)),
        (1.0, 1.0, (0.4, 0.5, 0.4, 0.3)),
        (0.99, 0.95, (0.316242, 0.446829, 0.375150, 0.3)),
    ],
)
def test_gae_vectors_of_training_md(gamma: float, gae_lambda: float, expected: tuple[float, ...]):
    got = gae_advantages(REWARD_BT, VALUE_BT, _all(VALUE_BT), gamma=gamma, gae_lambda=gae_lambda)
    torch.testing.assert_close(got, _row(*expected), **SIX_DECIMALS)


def test_whitened_vector_of_training_md():
    advantage_BT = gae_advantages(REWARD_BT, VALUE_BT, _all(VALUE_BT), gamma=1.0, gae_lambda=0.95)
    got = whitened(advantage_BT, _all(VALUE_BT), moments=Moments.of(advantage_BT, _all(VALUE_BT)))
    torch.testing.assert_close(got, _row(-0.436039, 1.307058, 0.165376, -1.036395), **SIX_DECIMALS)


def test_lambda_one_is_return_minus_value_and_lambda_zero_one_step():
    # arXiv:1506.02438 eq. 17–18
    mask_BT = _all(VALUE_BT)
    returns_BT = discounted_returns(REWARD_BT, mask_BT, gamma=0.9)
    torch.testing.assert_close(returns_BT, _row(-0.09 + 0.729, -0.1 + 0.81, 0.9, 1.0))
    one = gae_advantages(REWARD_BT, VALUE_BT, mask_BT, gamma=0.9, gae_lambda=1.0)
    torch.testing.assert_close(one, returns_BT - VALUE_BT)
    zero = gae_advantages(REWARD_BT, VALUE_BT, mask_BT, gamma=0.9, gae_lambda=0.0)
    torch.testing.assert_close(zero, _row(0.36 - 0.5, -0.1 + 0.54 - 0.4, 0.63 - 0.6, 0.3))


def test_perfect_values_leave_no_advantage_and_targets_are_the_values():
    value_BT = discounted_returns(REWARD_BT, _all(REWARD_BT), gamma=0.9)
    advantage_BT = gae_advantages(REWARD_BT, value_BT, _all(REWARD_BT), gamma=0.9, gae_lambda=0.7)
    torch.testing.assert_close(advantage_BT, torch.zeros_like(value_BT), rtol=0, atol=1e-15)
    torch.testing.assert_close(value_targets(advantage_BT, value_BT, _all(value_BT)), value_BT)


def test_three_response_tokens_by_hand():
    # value at t is of the state in which token t is chosen (public report R319); γ = λ = ½
    got = gae_advantages(_row(0, 0, 1), _row(0.5, 0.25, 0.125), _all(_row(0, 0, 0)), gamma=0.5, gae_lambda=0.5)
    third = 1 - 0.125
    second = 0.5 * 0.125 - 0.25 + 0.25 * third
    torch.testing.assert_close(got, _row(0.5 * 0.25 - 0.5 + 0.25 * second, second, third))


@pytest.mark.parametrize("junk", [9.0, math.nan])
@pytest.mark.parametrize(
    "places", [[0, 1, 2, 3], [5, 6, 7, 8], [2, 3, 4, 5], [0, 3, 4, 8]], ids=["right", "left", "both", "tools between"]
)
def test_what_the_mask_leaves_out_changes_no_advantage(places: list[int], junk: float):
    wide = torch.full((2, 1, 9), junk, dtype=torch.float64)
    mask_BT = torch.zeros(1, 9, dtype=torch.bool)
    mask_BT[:, places] = True
    wide[0][mask_BT], wide[1][mask_BT] = REWARD_BT.flatten(), VALUE_BT.flatten()
    got = gae_advantages(wide[0], wide[1], mask_BT, gamma=0.99, gae_lambda=0.95)
    expected = gae_advantages(REWARD_BT, VALUE_BT, _all(VALUE_BT), gamma=0.99, gae_lambda=0.95)
    torch.testing.assert_close(got[mask_BT], expected.flatten(), rtol=0, atol=0)
    assert (got[~mask_BT] == 0).all()
    assert (value_targets(got, wide[1], mask_BT)[~mask_BT] == 0).all()


def test_rewards_in_padding_do_not_flow_back():
    # public report R218: [6.5, 5, 4, 2] when the mask is all ones
    mask_BT = torch.tensor([[True, True, False, False]])
    assert discounted_returns(_row(1.5, 1, 2, 2), mask_BT, gamma=1.0).tolist() == [[2.5, 1, 0, 0]]


@settings(deadline=None, max_examples=30)
@given(
    lengths=st.lists(st.integers(0, 6), min_size=1, max_size=4),
    gamma=st.sampled_from([0.9, 1.0]),
    gae_lambda=st.sampled_from([0.0, 0.95, 1.0]),
    seed=st.integers(0, 99),
)
def test_gae_of_a_ragged_batch_is_the_sum_of_its_definition(lengths, gamma, gae_lambda, seed):
    torch.manual_seed(seed)
    reward_BT, value_BT = torch.randn(2, len(lengths), 6, dtype=torch.float64)
    mask_BT = torch.arange(6) < torch.tensor(lengths)[:, None]
    got = gae_advantages(reward_BT, value_BT, mask_BT, gamma=gamma, gae_lambda=gae_lambda)
    for row, length in enumerate(lengths):
        value = [*value_BT[row, :length].tolist(), 0.0]
        delta = [reward_BT[row, t].item() + gamma * value[t + 1] - value[t] for t in range(length)]
        expected = [sum((gamma * gae_lambda) ** (k - t) * delta[k] for k in range(t, length)) for t in range(length)]
        assert got[row].tolist() == pytest.approx([*expected, *[0.0] * (6 - length)], rel=1e-12, abs=1e-12)


def test_moments_of_parts_add_up_to_those_of_the_whole():
    torch.manual_seed(0)
    value_BT, mask_BT = 100 + torch.randn(6, 5, dtype=torch.float64), torch.rand(6, 5) > 0.4
    mask_BT[3] = False
    whole = Moments.of(value_BT, mask_BT)
    for parts in ([1] * 6, [2, 4], [3, 1, 2]):
        got = Moments(count=0, mean=0.0, squares=0.0)
        for value, mask in zip(value_BT.split(parts), mask_BT.split(parts), strict=True):
            got += Moments.of(value, mask)
        assert (got.count, got.mean, got.squares) == pytest.approx((whole.count, whole.mean, whole.squares), rel=1e-12)
    assert whole.variance == pytest.approx(value_BT[mask_BT].var().item(), rel=1e-12)


def test_whitened_has_mean_zero_and_std_one_and_the_other_keeps_its_mean():
    torch.manual_seed(0)
    value_BT, mask_BT = 3 + 2 * torch.randn(4, 6, dtype=torch.float64), torch.rand(4, 6) > 0.3
    value_BT[~mask_BT] = math.nan
    moments = Moments.of(value_BT, mask_BT)
    white_BT = whitened(value_BT, mask_BT, moments=moments)
    assert white_BT[mask_BT].mean().item() == pytest.approx(0, abs=1e-14)
    assert white_BT[mask_BT].std().item() == pytest.approx(1, abs=1e-8)  # the 1e-8 under the root
    scaled_BT = scaled_to_unit_std(value_BT, mask_BT, moments=moments)
    assert scaled_BT[mask_BT].mean().item() == pytest.approx(moments.mean, abs=1e-13)
    assert (white_BT[~mask_BT] == 0).all()
    assert (scaled_BT[~mask_BT] == 0).all()


@pytest.mark.parametrize("count", [0, 1])
def test_whitening_fewer_than_two_tokens_gives_zero(count: int):
    mask_BT = torch.arange(3)[None] < count
    got = whitened(_row(5, 6, 7), mask_BT, moments=Moments.of(_row(5, 6, 7), mask_BT))
    assert got.tolist() == [[0, 0, 0]]


def test_reinforce_plus_plus_is_the_whitened_return_to_go():
    # returns 1, 1, 2 and 0: mean 1, unbiased variance 2/3
    reward_BT, mask_BT = torch.tensor([[0.0, 1.0], [2.0, 0.0]]).double(), _all(torch.zeros(2, 2))
    got = reinforce_plus_plus_advantages(reward_BT, mask_BT)
    std = math.sqrt(2 / 3 + 1e-8)
    torch.testing.assert_close(got, torch.tensor([[0, 0], [1 / std, -1 / std]], dtype=torch.float64))


REWARDS_PG = _row(1, 0, 0, 1, 1, 0, 0, 0)


@pytest.mark.parametrize(
    ("advantages", "right", "wrong"),
    [
        (standardized_advantages, 1.207381, -0.724429),
        (centered_advantages, 0.625, -0.375),
        (leave_one_out_advantages, 0.714286, -0.428571),
        # others of a right answer: 2 of 7 right, unbiased variance 7/6·2/7·5/7; of a wrong one: 3 of 7
        (
            leave_one_out_standardized_advantages,
            (5 / 7) / (math.sqrt(10 / 42) + 1e-6),
            (-3 / 7) / (math.sqrt(12 / 42) + 1e-6),
        ),
    ],
)
def test_group_vectors(advantages, right: float, wrong: float):
    got = advantages(REWARDS_PG, _all(REWARDS_PG))
    torch.testing.assert_close(got, torch.where(REWARDS_PG > 0, right, wrong).double(), **SIX_DECIMALS)


@pytest.mark.parametrize("advantages", GROUP_FUNCTIONS)
def test_a_constant_added_to_all_rewards_of_a_prompt_changes_nothing(advantages):
    torch.manual_seed(0)
    reward_PG = torch.randn(3, 5, dtype=torch.float64)
    shift_P1 = torch.tensor([[10.0], [-3.0], [0.5]], dtype=torch.float64)
    scored_PG = _all(reward_PG)
    torch.testing.assert_close(
        advantages(reward_PG + shift_P1, scored_PG), advantages(reward_PG, scored_PG), rtol=1e-12, atol=1e-13
    )


@pytest.mark.parametrize("advantages", GROUP_FUNCTIONS)
@pytest.mark.parametrize("unscored", [0.0, 50.0, math.nan])
def test_an_unscored_answer_counts_in_no_mean_and_gets_nothing(advantages, unscored: float):
    # public reports R238 and R239: [1, None, 0, 1] is computed on three
    scored_PG = torch.tensor([[True, False, True, True]])
    got = advantages(_row(1, unscored, 0, 1), scored_PG)
    expected = advantages(_row(1, 0, 1), _all(_row(1, 0, 1)))
    torch.testing.assert_close(got[scored_PG], expected.flatten(), rtol=0, atol=0)
    assert got[0, 1] == 0


@pytest.mark.parametrize("advantages", GROUP_FUNCTIONS)
@pytest.mark.parametrize("score", [0.1, 1.0, -0.7, 1e6])
def test_equal_scores_give_exactly_zero_even_where_their_mean_rounds(advantages, score: float):
    reward_PG = torch.full((1, 7), score)  # seven times 0.1 in float32 has the mean 0.10000001
    assert (advantages(reward_PG, _all(reward_PG)) == 0).all()


@pytest.mark.parametrize("advantages", GROUP_FUNCTIONS)
@pytest.mark.parametrize("scored", [0, 1])
def test_a_group_of_one_or_none_teaches_nothing(advantages, scored: int):
    reward_PG = _row(3, 4)
    assert advantages(reward_PG, torch.arange(2)[None] < scored).tolist() == [[0, 0]]
    assert advantages(_row(3), torch.ones(1, 1, dtype=torch.bool)).tolist() == [[0]]


@pytest.mark.parametrize("advantages", GROUP_FUNCTIONS)
def test_a_scored_nan_does_not_vanish(advantages):
    assert advantages(_row(1, math.nan, 0, 1), _all(REWARDS_PG[:, :4])).isnan().any()


def test_leave_one_out_is_the_mean_of_the_others_by_definition():
    torch.manual_seed(0)
    reward_PG = torch.randn(2, 4, dtype=torch.float64)
    got = leave_one_out_advantages(reward_PG, _all(reward_PG))
    for prompt in range(2):
        for sample in range(4):
            others = torch.cat([reward_PG[prompt, :sample], reward_PG[prompt, sample + 1 :]])
            assert got[prompt, sample].item() == pytest.approx((reward_PG[prompt, sample] - others.mean()).item())


def test_leave_one_out_std_of_equal_others_is_no_scale():
    # one right among four: its siblings all score 0, and 1/ε would be a million
    got = leave_one_out_standardized_advantages(_row(1, 0, 0, 0), _all(_row(1, 0, 0, 0)))
    assert got[0, 0] == 1
    assert got[0, 1].item() == pytest.approx((-1 / 3) / math.sqrt(1 / 3), rel=1e-5)


def test_only_groups_with_two_different_scores_are_informative():
    reward_PG = torch.tensor([[1.0, 1, 1], [0, 0, 0], [0, 1, 0], [1, 0, math.nan], [1, math.nan, 7]])
    scored_PG = torch.tensor([[True] * 3, [True] * 3, [True] * 3, [True, True, False], [True, False, False]])
    assert informative_groups(reward_PG, scored_PG).tolist() == [False, False, True, True, False]


def test_per_token_repeats_within_the_mask():
    mask_BT = torch.tensor([[True, True, False], [False, True, False]])
    assert per_token(torch.tensor([2.0, -1.0]), mask_BT).tolist() == [[2, 2, 0], [0, -1, 0]]


def test_overlong_vector_of_training_md():
    length_B = torch.tensor([3000, 3500, 4000, 4096, 4200])
    got = overlong_penalty(length_B, max_tokens=4096, buffer_tokens=1024)
    torch.testing.assert_close(got, torch.tensor([0, -0.417969, -0.90625, -1, -1]), rtol=0, atol=6e-7)


@pytest.mark.parametrize("buffer", [0, 4097])
def test_an_overlong_buffer_outside_the_length_is_refused(buffer: int):
    with pytest.raises(ValueError, match="must lie between"):
        overlong_penalty(torch.tensor([1]), max_tokens=4096, buffer_tokens=buffer)


def test_two_ways_to_treat_an_answer_that_never_ended():
    score_B, ended_B = torch.tensor([0.5, 0.5]), torch.tensor([True, False])
    assert lowered_without_eos(score_B, ended_B, penalty=1.0).tolist() == [0.5, -0.5]
    assert replaced_without_eos(score_B, ended_B, score=-3.0).tolist() == [0.5, -3.0]


def test_advantages_carry_no_gradient():
    value_BT = VALUE_BT.clone().requires_grad_()
    advantage_BT = gae_advantages(REWARD_BT, value_BT, _all(value_BT), gamma=1.0, gae_lambda=0.95)
    assert not advantage_BT.requires_grad
    assert not value_targets(advantage_BT, value_BT, _all(value_BT)).requires_grad
