"""The README shows what the commands print, and the Python API answers as the command line does."""

import json
import subprocess
import sys
from pathlib import Path

import headcount

ROOT = Path(__file__).parents[2]


def test_readme_is_what_the_commands_print():
    done = subprocess.run(
        [sys.executable, "scripts/readme", "--check"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def test_public_names_are_complete_and_load():
    assert headcount.__all__ == sorted(headcount.__all__)
    assert all(getattr(headcount, name) is not None for name in headcount.__all__)


def test_api_and_command_line_agree():
    config = ROOT / "configs/plan/dpo-live.toml"
    plan = headcount.plan(headcount.read_job(config))
    command = [sys.executable, "-m", "headcount.cli", "plan", str(config), "--json"]
    printed = json.loads(subprocess.run(command, capture_output=True, text=True, timeout=60, check=False).stdout)
    assert printed["verdict"] == plan.verdict
    assert printed["deciding"]["moment"] == plan.deciding.label
    assert printed["levels_bytes"]["allocated"]["p50"] == plan.levels["allocated"].p50


def test_a_job_without_a_count_is_built_on_the_fewest_gpus(tmp_path):
    text = (ROOT / "configs/plan/sft.toml").read_text().replace("gpus = 2\n", "")
    (tmp_path / "job.toml").write_text(text)
    job = headcount.read_job(tmp_path / "job.toml")
    assert headcount.plan(job).verdict == "fits"
    fewer = headcount.read_job(tmp_path / "job.toml", gpus=job.gpus - 1)
    assert headcount.plan(fewer).verdict != "fits"
