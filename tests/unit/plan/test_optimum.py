"""The search: what it says of a layout is what the plan says, its winner fits, nothing is lost on the way."""

from __future__ import annotations

import random
from itertools import pairwise

import pytest
from plan_jobs import spec

from headcount.errors import InputError
from headcount.plan.candidates import grids
from headcount.plan.footprint import tightness
from headcount.plan.optimum import Objective, _Tally, _timed, search
from headcount.plan.planner import plan
from headcount.vocabulary import Verdict


def settings_over(base, settings):
    made = base
    for key, value in settings.items():
        made = made.replaced(key, value)
    return made


@pytest.fixture(scope="module")
def timed():
    base = spec(hardware__gpus=None)
    tally = _Tally()
    found = [each for grid in grids(base, base.build(gpus=8), 8) for each in _timed(base, grid, tally)]
    return base, found


def test_seconds_and_bytes_of_200_sampled_layouts_equal_the_plan_s(timed):
    base, found = timed
    compared = 0
    for candidate in random.Random(7).sample(found, 400):
        try:
            job = settings_over(base, candidate.settings).build(gpus=candidate.grid.train_gpus)
        except InputError:
            continue
        planned = plan(job)
        assert planned.run is not None
        assert planned.run.step_seconds.p50 == pytest.approx(candidate.step_s, rel=1e-9)
        worst = max((tightness(job, group) for group in job.layouts), key=lambda each: each[1].p50)
        assert worst[2].bytes == max(footprint.deciding.bytes for footprint in planned.footprints)
        compared += 1
        if compared == 200:
            break
    assert compared == 200


def test_the_winner_is_what_plan_says_and_fits():
    base = spec(hardware__gpus=None)
    found = search([base], gpus=[8])
    best = found.chosen
    assert best is not None
    planned = plan(settings_over(base, best.settings).build(gpus=best.train_gpus))
    assert planned.verdict is Verdict.FITS
    assert planned.run.hours.p50 == pytest.approx(best.hours.p50, rel=1e-9)
    assert planned.gpus == best.gpus == 8


def test_every_candidate_is_found_or_has_a_reason():
    found = search([spec(hardware__gpus=None)], gpus=[8], keep=3)
    assert sum(found.rejected.values()) + 3 == found.candidates


def test_what_the_job_states_is_not_changed():
    found = search([spec(layout__tensor=2, update__micro_batch_sequences=4)], gpus=[8])
    assert found.best
    assert all("layout.tensor" not in choice.settings for choice in found.best)


def test_the_front_trades_gpus_for_hours():
    front = search([spec(hardware__gpus=None)], gpus=[4, 8, 16]).front
    assert len(front) > 1
    ordered = sorted(front, key=lambda choice: choice.gpus)
    assert all(b.hours.p50 < a.hours.p50 for a, b in pairwise(ordered) if b.gpus > a.gpus)


def test_cheapest_costs_no_more_than_fastest_and_fastest_takes_no_longer():
    base = spec(hardware__gpus=None)
    fast, cheap = (search([base], gpus=[4, 16], objective=goal).chosen for goal in Objective)
    assert cheap.dollars.p50 <= fast.dollars.p50
    assert fast.hours.p50 <= cheap.hours.p50


def test_a_deadline_that_nothing_meets_leaves_nothing():
    found = search([spec(hardware__gpus=None)], gpus=[8], deadline_hours=0.0001)
    assert found.chosen is None
    assert found.rejected["over the deadline or the budget"]


def test_when_nothing_fits_the_nearest_miss_is_named():
    found = search([spec(policy__model="Qwen/Qwen2.5-72B-Instruct", policy__tuning="full")], gpus=[1])
    assert found.chosen is None
    assert set(found.rejected) == {"model state alone is larger than the card"}
    assert found.nearest is not None
    assert found.nearest.verdict is Verdict.DOES_NOT_FIT
    assert any("then it fits" in fix or "saves" in fix for fix in found.fixes)
