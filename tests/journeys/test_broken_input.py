"""What a breaker tried: each once printed a bug, hung, or planned something else than was asked."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from headcount.errors import InputError
from headcount.job.load import read_spec, spec_from

ROOT = Path(__file__).parents[2]
JOB = {"algorithm": "sft", "policy": {"model": "Qwen/Qwen2.5-0.5B"}, "hardware": {"gpu": "h100", "gpus": 1}}


def headcount(*arguments: str, **more) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "headcount.cli", *arguments]
    return subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=60, check=False, **more)


def with_rows(tmp_path: Path, *rows: object):
    (tmp_path / "rows.jsonl").write_text("\n".join(json.dumps(row) for row in rows), "utf-8")
    return spec_from(JOB | {"data": {"rows": str(tmp_path / "rows.jsonl")}}).build()


def test_chats_are_read_as_prompt_and_last_turn(tmp_path):
    turns = [{"role": "user", "content": "x" * 400}, {"role": "assistant", "content": "y" * 80}]
    job = with_rows(tmp_path, {"messages": turns})
    # 4 characters a token
    assert (job.lengths.prompt_max, job.lengths.completion_max) == (100, 20)


@pytest.mark.parametrize("row", [{"x": 1}, {"prompt": None}, {"prompt_tokens": 0, "completion_tokens": 0}])
def test_a_data_file_without_text_is_refused(tmp_path, row):
    with pytest.raises(InputError, match="no row has text or tokens"):
        with_rows(tmp_path, row)


def test_data_and_evidence_must_be_files():
    with pytest.raises(InputError, match="not a regular file"):
        spec_from(JOB | {"data": {"rows": "/dev/zero"}}).build()
    assert "not a regular file" in headcount("backtest", "/dev/zero").stderr


def test_an_empty_evidence_file_is_no_backtest(tmp_path):
    (tmp_path / "empty.jsonl").write_text("")
    done = headcount("backtest", str(tmp_path / "empty.jsonl"))
    assert done.returncode == 2
    assert "no case in it" in done.stderr


def test_one_absurd_row_is_skipped_and_the_others_are_scored(tmp_path):
    good = (ROOT / "evidence/published.jsonl").read_text("utf-8").splitlines()[0]
    absurd = json.loads(good) | {"params_b": 10**400, "model": None}
    (tmp_path / "two.jsonl").write_text(f"{json.dumps(absurd)}\n{good}\n")
    scores = json.loads(headcount("backtest", str(tmp_path / "two.jsonl"), "--json").stdout)
    bytes_only = [score for score in scores if score["kind"] != "time"]
    assert [bool(score["skipped"]) for score in bytes_only] == [True, False]


@pytest.mark.parametrize("count", [10**400, 0xF << 20_000, 1e300], ids=["400 digits", "20,000 bits", "float"])
def test_huge_numbers_are_out_of_bounds(count):
    with pytest.raises(InputError, match="outside 1 to"):
        spec_from(JOB | {"hardware": {"gpu": "h100", "gpus": count}})


def test_a_whole_float_is_a_count():
    assert (
        spec_from(JOB | {"hardware": {"gpu": "h100", "gpus": 2.0}}).build().layouts["train"].text.startswith("2 GPUs")
    )


def test_a_target_that_no_module_is_called_is_refused():
    policy = JOB["policy"] | {"tuning": "lora", "adapter": {"targets": ["q_prj"]}}
    with pytest.raises(InputError, match="did you mean q_proj"):
        spec_from(JOB | {"policy": policy}).build()


def test_a_byte_order_mark_is_no_part_of_the_job(tmp_path):
    text = 'algorithm = "sft"\n[policy]\nmodel = "7b"\n[hardware]\ngpu = "h100"\n'
    (tmp_path / "job.toml").write_text(text, "utf-8-sig")
    assert read_spec(tmp_path / "job.toml").flat["policy.model"] == "7b"


def test_one_set_changes_one_key():
    with pytest.raises(InputError):
        spec_from(JOB, overrides=["layout.tensor=1\nlayout.pipeline=2"])


def test_a_terminal_without_the_letters_gets_the_rest():
    done = headcount("explain", "ppo", env=os.environ | {"PYTHONIOENCODING": "ascii"})
    assert done.returncode == 0
    assert "naive count" in done.stdout


def test_a_full_disk_is_not_called_a_bug():
    with open("/dev/full", "w") as full:
        command = [sys.executable, "-m", "headcount.cli", "facts", "gpus"]
        done = subprocess.run(
            command, stdout=full, stderr=subprocess.PIPE, text=True, cwd=ROOT, timeout=60, check=False
        )
    assert done.returncode == 74
    assert "No space left" in done.stderr


def test_brackets_in_a_name_are_no_markup(tmp_path):
    text = (ROOT / "configs/plan/ppo-7b.toml").read_text("utf-8")
    text += '\n[layout]\nroles = { critic = "[/]" }\n[layout.groups."[/]"]\ngpus = 2\n'
    (tmp_path / "job.toml").write_text(text)
    done = headcount("plan", str(tmp_path / "job.toml"))
    assert done.returncode in (0, 3, 4), done.stderr
    assert "[/]" in done.stdout


def test_no_band_reaches_below_zero():
    spec = spec_from(
        {
            "algorithm": "ppo",
            "recipe": "verl",
            "policy": {"model": "70b", "tuning": "lora"},
            "hardware": {"gpu": "t4", "gpus": 64},
        }
    )
    import headcount as package

    plan = package.plan(spec.build())
    assert all(band.p10 >= 0 for footprint in plan.footprints for band in footprint.levels.values())
    # An assumption about the engine does not move what the trainer allocates by the engine's bytes.
    assert plan.levels["allocated"].p10 > 0.5 * plan.levels["allocated"].p50
