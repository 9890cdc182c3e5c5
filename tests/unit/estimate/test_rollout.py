"""Rollouts against closed forms: one length, given rates, caps, and the conservation of tokens."""

from __future__ import annotations

import pytest

from headcount.estimate.rollout import (
    completion_lengths,
    fixed_rate_s,
    quantiles,
    rollout_s,
    schedule,
    slowest_share,
)


def test_one_length_at_a_given_aggregate_rate_is_volume_over_rate_exactly():
    assert fixed_rate_s(prompts=128, group_size=8, completion_tokens=600, tokens_per_s=3000) == 128 * 8 * 600 / 3000


def test_one_length_without_a_cap_takes_its_length_in_steps():
    order = schedule((100.0,) * 64, sequences=64, cap=64, prompt_tokens=10)
    assert rollout_s(order, lambda live, cached: 1.0) == pytest.approx(100.0)


def test_a_cap_of_half_takes_two_waves():
    order = schedule((100.0,) * 64, sequences=64, cap=32, prompt_tokens=10)
    assert rollout_s(order, lambda live, cached: 1.0) == pytest.approx(200.0)


@pytest.mark.parametrize("cap", [8, 50, 256, 1000])
def test_every_token_is_decoded_once_whatever_the_cap(cap):
    lengths = completion_lengths(512, 1024)
    order = schedule(lengths, sequences=640, cap=cap, prompt_tokens=0)
    decoded = sum(stretch.steps * stretch.live for stretch in order)
    assert decoded == pytest.approx(640 * sum(lengths) / len(lengths), rel=0.03)  # bundles round the cap


def test_the_cache_of_equal_lengths_is_half_grown_on_average():
    order = schedule((100.0,) * 64, sequences=64, cap=64, prompt_tokens=10)
    steps = sum(stretch.steps for stretch in order)
    mean = sum(stretch.steps * stretch.cached_tokens for stretch in order) / steps
    assert mean == pytest.approx(64 * (10 + 50))


@pytest.mark.parametrize(("mean", "cap", "sigma"), [(512, 1024, 0.7), (100, 8192, 1.0), (1000, 1024, 0.3)])
def test_lengths_keep_their_mean_and_never_pass_the_cap(mean, cap, sigma):
    lengths = completion_lengths(mean, cap, sigma)
    assert max(lengths) <= cap
    assert sum(lengths) / len(lengths) == pytest.approx(mean, rel=0.01)
    assert list(lengths) == sorted(lengths)


def test_no_spread_gives_one_length():
    assert set(completion_lengths(300, 1024, 0.0)) == {300}


def test_quantiles_keep_the_mean_of_what_they_stand_for():
    drawn = tuple(float(i) for i in range(1000))
    assert sum(quantiles(drawn)) / len(quantiles(drawn)) == pytest.approx(499.5, rel=0.01)


def test_one_replica_has_no_straggler_and_more_prompts_even_replicas_out():
    lengths = completion_lengths(512, 1024)
    assert slowest_share(lengths, prompts=128, group_size=8, replicas=1) == 1.0
    few, many = (slowest_share(lengths, prompts=p, group_size=8, replicas=8) for p in (16, 1024))
    assert 1.0 < many < few


def test_equal_lengths_have_no_straggler():
    assert slowest_share((100.0,) * 64, prompts=8, group_size=8, replicas=8) == 1.0
