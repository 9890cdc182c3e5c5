"""Levers change what they say; more GPUs never make the same step longer than what binds it."""

from __future__ import annotations

import pytest
from plan_jobs import job, spec

from headcount.errors import InputError
from headcount.plan.levers import LEVERS, pulled
from headcount.plan.planner import plan
from headcount.plan.scale import counts_in, scaled


def test_every_lever_s_savings_are_the_difference_of_two_plans():
    made = job(update__beta=0.01)
    base = plan(made)
    for each in pulled(made):
        if each.lever.value is None:
            continue
        changed = plan(made.replaced(each.lever.key, each.lever.value))
        assert each.saved_bytes == base.deciding.bytes - changed.deciding.bytes
        assert each.saved_step_s == pytest.approx(base.run.step_seconds.p50 - changed.run.step_seconds.p50)


def test_levers_that_contradict_the_job_are_left_out():
    keys = {each.lever.key for each in pulled(job())}
    assert "critic.trunk" not in keys
    assert "update.kl_coef" not in keys


def test_every_lever_says_what_it_does_to_quality():
    assert all(lever.quality for lever in LEVERS)


@pytest.mark.parametrize(
    ("text", "counts"),
    [("8", [8]), ("8..64", [8, 16, 32, 64]), ("8,24", [8, 24]), ("3..20", [3, 6, 12])],
)
def test_counts(text, counts):
    assert counts_in(text) == counts


@pytest.mark.parametrize("text", ["", "x", "0", "8..", "-4", "99999999"])
def test_no_counts(text):
    with pytest.raises(InputError, match="no count of 1 to"):
        counts_in(text)


def test_more_gpus_are_faster_and_never_more_efficient():
    points = [point for point in scaled(spec(), [8, 16, 32]) if point.plan]
    seconds = [point.plan.run.step_seconds.p50 for point in points]
    assert seconds == sorted(seconds, reverse=True)
    assert all(point.efficiency <= 1.0001 for point in points)
    assert all(0 <= share <= 1 for point in points for _, share in point.shares)
