"""More GPUs, as published: what the same job gains, and what a GPU keeps of its rate, against the planner.

A ratio of two rows of one table cancels what the planner may have wrong about the model or the card; what is left is
scaling: the longest answer, exposed wires, fixed costs.
"""

from __future__ import annotations

import json
from itertools import groupby
from pathlib import Path

import numpy as np
import pytest

import headcount
from headcount.estimate.training import step_seconds
from headcount.facts.training_speed import training_speed
from headcount.measure.mapping.evidence import read_cases
from headcount.measure.time_rows.planned import PlannedRow, planned_rows
from headcount.measure.time_rows.training import TrainingRow, training_rows

_ROOT = Path(__file__).parents[2]
_SAME = ("source", "model", "gpu", "precision", "seq_len_tokens", "micro_batch", "activation_checkpointing",
         "parallelism", "tp", "pp", "cp", "ep", "vp")  # fmt: skip


@pytest.fixture(scope="module")
def aligner():
    """PPO of Llama-3-70B on 12 to 96 hosts: seconds a step by GPUs."""
    cases = [case for case in read_cases([_ROOT / "evidence/published.jsonl"]) if "aligner-l3-70b-ppo" in case.id]
    rows = [each for each in planned_rows(cases, plan=headcount.plan) if isinstance(each, PlannedRow)]
    return sorted(rows, key=lambda row: row.job.gpus)


def test_the_step_of_a_70b_ppo_shortens_with_its_hosts_as_published(aligner):
    """366.7 s on 96 GPUs to 56.9 s on 768 (NVIDIA/NeMo-Aligner, its PPO guide): 6.4 × on 8 ×."""
    assert len(aligner) == 4
    first = aligner[0]
    for row in aligner[1:]:
        gained, predicted = first.observed_s / row.observed_s, first.predicted_s.p50 / row.predicted_s.p50
        assert predicted == pytest.approx(gained, rel=0.15)


def test_what_a_gpu_keeps_of_its_rate_from_one_host_to_sixty_four():
    """One layout and micro-batch on growing counts (LLM Foundry, NVIDIA): tokens/s per GPU, last over first."""
    rows = [json.loads(line) for line in (_ROOT / "evidence/training.jsonl").read_text("utf-8").splitlines()]
    for number, row in enumerate(rows):
        row["id"] = str(number)
    usable = sorted(
        (each for each in training_rows(rows) if isinstance(each, TrainingRow)),
        key=lambda each: (table_of(rows, each), each.gpus),
    )
    missed = []
    for _, table in groupby(usable, key=lambda each: table_of(rows, each)):
        same = list(table)
        if same[-1].gpus >= 4 * same[0].gpus and len({each.gpus for each in same}) == len(same):
            kept = same[-1].observed_tokens_per_s_per_gpu / same[0].observed_tokens_per_s_per_gpu
            missed.append(rate(same[-1]) / rate(same[0]) - kept)
    assert len(missed) >= 10
    assert abs(np.median(missed)) <= 0.05
    assert np.quantile(np.abs(missed), 0.9) <= 0.15


def table_of(rows, each):
    return tuple(str(rows[int(each.id)].get(key)) for key in _SAME)


def rate(row):
    mixture = row.segment == "megatron-mixture"
    speed = training_speed(row.architecture, row.precision, row.framework, mixture=mixture, release=row.release)
    return row.tokens / row.gpus / float(step_seconds(row.work, speed))
