"""The seconds of a step: rows add up, phases overlap, a stated rate replaces the model's."""

from __future__ import annotations

import re

import pytest
from plan_jobs import job

from headcount.errors import InputError
from headcount.plan.planner import plan
from headcount.plan.step_time import between_rows, generate_rows, seconds_of, step_seconds, train_rows

STATED = {
    "rollout__throughput__tokens_per_s": 3000,
    "rollout__throughput__scope": "aggregate",
    "rollout__throughput__concurrency": 512,
    "rollout__throughput__model": "Qwen/Qwen2.5-7B-Instruct",
    "rollout__throughput__gpu": "h100-sxm",
    "rollout__throughput__precision": "bf16",
    "rollout__throughput__tensor": 1,
}
APART = {"rollout__engine_placement": "separate", "rollout__engine_gpus": 8}


def named(made, name):
    return next(part for part in step_seconds(made) if part.name == name)


def test_a_given_aggregate_rate_and_one_length_make_the_rollout_volume_over_rate_exactly():
    made = job(**STATED, rollout__completion_tokens=600, rollout__prompts_per_step=128, rollout__group_size=8)
    assert named(made, "generate").band.p50 == 128 * 8 * 600 / 3000


def test_one_stream_s_rate_takes_the_longest_answer_over_it():
    per_stream = STATED | {"rollout__throughput__scope": "per-stream", "rollout__throughput__tokens_per_s": 50}
    made = job(**per_stream, rollout__completion_tokens=600, rollout__prompts_per_step=64, rollout__group_size=8)
    assert named(made, "generate").band.p50 == pytest.approx(600 / 50)


def test_one_stream_s_rate_called_aggregate_is_refused():
    with pytest.raises(InputError, match="looks like one stream's rate"):
        step_seconds(job(**STATED | {"rollout__throughput__tokens_per_s": 60}))


@pytest.mark.parametrize("missing", ["scope", "concurrency", "model", "gpu", "precision", "tensor"])
def test_a_rate_without_its_scope_or_a_condition_is_refused(missing):
    with pytest.raises(InputError, match=f"rollout.throughput.{missing}: is missing"):
        job(**{key: value for key, value in STATED.items() if not key.endswith(f"__{missing}")})


def test_a_rate_of_another_model_or_card_is_refused():
    with pytest.raises(InputError, match="measured with") as error:
        job(**STATED | {"rollout__throughput__model": "other", "rollout__throughput__gpu": "a100-sxm-80gb"})
    assert len(error.value.mistakes) == 2


def test_colocated_phases_add_up_to_the_step():
    made = job()
    parts = [seconds_of(rows(made)).p50 for rows in (generate_rows, train_rows, between_rows)]
    assert sum(part.band.p50 for part in step_seconds(made)) == pytest.approx(sum(parts))
    run = plan(made).run
    assert run is not None
    assert run.step_seconds.p50 == pytest.approx(sum(parts))


def test_staleness_hides_the_shorter_side_and_leaves_the_other_idle():
    waits, ahead = job(**APART), job(**APART, rollout__staleness=1)
    generate, train, between = (seconds_of(rows(ahead)).p50 for rows in (generate_rows, train_rows, between_rows))
    wall = sum(part.band.p50 for part in step_seconds(ahead))
    assert wall == pytest.approx(max(generate, train) + between)
    assert wall < sum(part.band.p50 for part in step_seconds(waits))
    idle_waiting, idle_ahead = (plan(each).run.idle_gpu_hours for each in (waits, ahead))
    assert 0 < idle_ahead < idle_waiting


def test_a_reward_function_costs_its_seconds_over_its_workers():
    made = job(reward=[{"kind": "code", "seconds": 0.5, "workers": 64}], rollout__prompts_per_step=128)
    assert named(made, "score function").band.p50 == 128 * 8 * 0.5 / 64


def test_on_policy_needs_no_pass_for_old_log_probs():
    names = {part.name for part in step_seconds(job())}
    assert "score policy" not in names
    assert "score policy" in {part.name for part in step_seconds(job(update__mini_batch_prompts=32))}


def test_an_observed_rate_is_met_and_narrows_the_band():
    seen = {"observed__decode_tokens_per_s": 9000.0, "observed__scope": "aggregate", "observed__concurrency": 1024}
    plain, refitted = (named(made, "generate").band for made in (job(), job(**seen)))
    assert refitted.p50 > plain.p50
    assert refitted.p90 / refitted.p10 < plain.p90 / plain.p10
    said = named(job(**seen), "generate").refit
    assert re.search(r"decode ([\d,]+) → 9,000 tokens/s \(aggregate, 1,024 at once\)", said)
    assert named(job(), "generate").refit == ""


def test_a_refit_states_the_rate_that_the_model_had():
    """Told the model's own rate, it changes nothing: the factor is 1."""
    seen = {"observed__decode_tokens_per_s": 9000.0, "observed__scope": "aggregate", "observed__concurrency": 1024}
    own = float(re.search(r"decode ([\d,]+) →", named(job(**seen), "generate").refit)[1].replace(",", ""))
    again = named(job(**seen | {"observed__decode_tokens_per_s": own}), "generate")
    assert "× 1.00," in again.refit
    assert again.band.p50 == pytest.approx(named(job(), "generate").band.p50, rel=0.01)


def test_an_observed_update_is_met_exactly():
    made = job(observed__train_tokens_per_s=9000.0)
    tokens = 128 * 8 * made.lengths.row_mean
    update = named(made, "update policy")
    assert update.band.p50 == pytest.approx(tokens / (9000 * 8))
    own = float(re.search(r"training ([\d,]+) → 9,000 tokens/s per GPU", update.refit)[1].replace(",", ""))
    assert own == pytest.approx(tokens / (named(job(), "update policy").band.p50 * 8), rel=0.001)


def test_the_longest_answer_bounds_the_rollout_from_below():
    short, long = (
        named(job(rollout__completion_tokens={"mean": 600, "max": most}), "generate") for most in (600, 8192)
    )
    assert long.band.p50 > short.band.p50


def test_unknown_speed_is_no_time_at_all():
    made = plan(job(hardware__gpu="mi210", hardware__gpus=8))
    assert made.stages == () or made.run is not None


def test_checkpoints_and_evaluations_are_counted():
    made = plan(job(work__steps=100, work__save_every=25, work__evaluate_every=20, work__evaluation_prompts=128))
    stages = {stage.name: stage for stage in made.stages}
    assert stages["checkpoints"].steps == 4
    assert stages["evaluation"].steps == 5


def test_a_trainer_that_no_row_measures_has_a_wider_band():
    """prime-rl and torchtitan run the same class of kernels; rates of torchtitan were published."""
    sft = {"algorithm": "sft", "reward": None, "policy__model": "meta-llama/Llama-3.1-8B"}
    measured, other = (named(job(**sft, recipe=recipe), "update policy").band for recipe in ("torchtitan", "prime-rl"))
    assert other.p90 / other.p10 > measured.p90 / measured.p10
