"""Published training throughput judges the training model, each row by a fit that has not seen its (model, GPU).

Rows and sources: evidence/training.jsonl (LLM Foundry, torchtitan, torchtune, NVIDIA Megatron-Bridge, NeMo and
dgxc-benchmarking). Tolerances are the project's bars, not fits.
"""

from __future__ import annotations

import json
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path

import numpy as np
import pytest

import headcount
from headcount.facts.training_speed import training_speed
from headcount.measure.mapping.evidence import read_cases
from headcount.measure.time_rows.decode import Skipped
from headcount.measure.time_rows.planned import PlannedRow, planned_rows
from headcount.measure.time_rows.rl import RlRow, rl_rows
from headcount.measure.time_rows.training import TrainingRow, training_rows

_ROOT = Path(__file__).parents[2]


def rows_of(name):
    lines = (_ROOT / f"evidence/{name}.jsonl").read_text("utf-8").splitlines()
    return [json.loads(line) for line in lines]


@pytest.fixture(scope="module")
def fit():
    loader = SourceFileLoader("fit_training", str(_ROOT / "scripts/fit_training"))
    module = module_from_spec(spec_from_loader("fit_training", loader))
    loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def left_out(fit):
    rows = [each for each in training_rows(rows_of("training")) if isinstance(each, TrainingRow)]
    table = fit.Table(rows)
    theta = table.fit(np.ones(len(rows), bool))
    return table, fit.left_out(table, theta, lambda row: "|".join(row.group))


def absolute(left_out, segment):
    table, errors = left_out
    return np.abs(np.expm1(errors[[row.segment == segment for row in table.rows]]))


@pytest.mark.parametrize(
    ("segment", "quantile", "bar"),
    [
        ("fsdp", 0.5, 0.06),
        ("fsdp", 0.9, 0.16),
        ("megatron-dense", 0.5, 0.06),
        ("megatron-dense", 0.9, 0.18),
        ("megatron-mixture", 0.5, 0.15),
        ("megatron-mixture", 0.9, 0.42),
    ],
)
def test_throughput_of_a_model_and_card_that_the_fit_has_not_seen(left_out, segment, quantile, bar):
    errors = absolute(left_out, segment)
    assert len(errors) > 80
    assert np.quantile(errors, quantile) <= bar


def test_one_measured_row_of_the_same_trainer_leaves_a_twentyfifth(left_out):
    table, errors = left_out
    groups: dict[tuple[str, ...], list[float]] = {}
    for row, error in zip(table.rows, errors, strict=True):
        groups.setdefault((*row.group, row.framework, row.precision), []).append(error)
    near = [abs(np.expm1(b - a)) for group in groups.values() for a in group for b in group if a is not b]
    assert np.median(near) <= 0.04


def test_the_shipped_bands_hold_seven_to_nine_rows_in_ten(left_out):
    table, errors = left_out
    rows = table.rows
    for segment in sorted({row.segment for row in rows}):
        first = next(row for row in rows if row.segment == segment)
        mixture = segment == "megatron-mixture"
        low, high = training_speed(first.architecture, first.precision, first.framework, mixture=mixture).spread
        late = np.exp(errors[[row.segment == segment for row in rows]])  # observed seconds over predicted ones
        assert 0.70 <= np.mean((low <= late) & (late <= high)) <= 0.90


def test_the_shipped_constants_are_those_of_the_fit(fit, left_out):
    table, _ = left_out
    value = dict(zip(table.names, np.exp(table.fit(np.ones(len(table.rows), bool))), strict=True))
    speed = training_speed("hopper", "bf16", "megatron", mixture=False)
    assert speed.gemm == pytest.approx(value["gemm", "hopper.bf16"] * value["pace", "megatron"], rel=0.01)
    assert speed.attention == pytest.approx(value["attention", "hopper"] * value["kernel", "megatron"], rel=0.01)


def test_a_row_above_its_card_s_peak_casts_doubt_on_its_whole_table():
    skipped = [each for each in training_rows(rows_of("training")) if isinstance(each, Skipped)]
    doubted = [each.id for each in skipped if "does not mean what it says" in each.reason]
    assert len(doubted) == 2  # torchtune's A6000: 80 to 97 % of peak
    assert all(name.startswith("torchtune") for name in doubted)


CHANGES = [{"gpus": None}, {"micro_batch": "x"}, {"model": None}, {"precision": None}, {"tok_s_per_gpu": None}]


@pytest.mark.parametrize("change", CHANGES)
def test_a_row_that_says_too_little_is_skipped_with_its_reason(change):
    good = next(row for row in rows_of("training") if row["source"] == "llm_foundry")
    (read,) = training_rows([good | change])
    assert isinstance(read, Skipped)
    assert read.reason


def test_without_the_global_batch_a_megatron_row_has_neither_bubble_nor_optimizer_share():
    good = next(row for row in rows_of("training") if row["source"] == "megatron_bridge" and row["precision"])
    (read,) = training_rows([good | {"global_batch": None}])
    assert isinstance(read, Skipped)
    assert "global batch" in read.reason


def test_rl_steps_that_state_lengths_and_batch():
    rows = [each for each in rl_rows(rows_of("rl"), plan=headcount.plan) if isinstance(each, RlRow)]
    errors = [abs(row.predicted_s.p50 / row.observed_s - 1) for row in rows]
    assert len(errors) >= 25
    assert np.median(errors) <= 0.17
    assert np.quantile(errors, 0.9) <= 0.40


def test_steps_of_eager_trainers_with_at_least_2048_tokens_a_micro_batch():
    cases = read_cases([_ROOT / "evidence/published.jsonl"])
    rows = [each for each in planned_rows(cases, plan=headcount.plan) if isinstance(each, PlannedRow)]
    eager = [row for row in rows if row.segment == "hf" and row.grade in ("A", "B")]
    errors = [abs(row.predicted_s.p50 / row.observed_s - 1) for row in eager]
    assert len(errors) > 60
    assert np.median(errors) <= 0.15
    assert np.quantile(errors, 0.9) <= 0.45
    held = np.mean([row.predicted_s.p10 <= row.observed_s <= row.predicted_s.p90 for row in eager])
    assert 0.70 <= held <= 0.92
