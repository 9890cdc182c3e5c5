"""`--set` reaches every table and is blamed for its own mistakes; messages spell values as TOML does."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from headcount.errors import InputError
from headcount.job.load import read_spec

ROOT = Path(__file__).resolve().parents[2]
JOB = ROOT / "configs/plan/grpo-7b-checker.toml"


def run(*arguments):
    command = [sys.executable, "-m", "headcount", *arguments]
    return subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=120, check=False)


@pytest.mark.parametrize(
    ("text", "path", "value"),
    [
        ("reward.kind=code", "reward", [{"kind": "code"}]),
        ("reward.0.kind=code", "reward", [{"kind": "code"}]),
        ("reward.1.kind=exact", "reward", [{"kind": "math"}, {"kind": "exact"}]),
        ("reference.placement=offload", "reference.placement", "offload"),
        ("update.compiled=true", "update.compiled", True),
    ],
)
def test_set_reaches_every_table(text, path, value):
    assert read_spec(JOB, overrides=[text]).flat[path] == value


def test_set_reaches_roles_and_groups():
    ppo = ROOT / "configs/plan/ppo-7b.toml"
    made = read_spec(ppo, overrides=["layout.groups.aside.gpus=4", "layout.roles.reward=aside"])
    assert made.build(gpus=8).layouts["aside"].gpus == 4


@pytest.mark.parametrize(
    "text", ["layout.x=1", "reward.kind=foo", "update.passes=none", "layout.tensor=3", "policy.model=nobody/none"]
)
def test_a_mistake_of_set_is_not_blamed_on_the_file(text):
    with pytest.raises(InputError) as error:
        read_spec(JOB, overrides=[text]).build()
    assert any(mistake.where == f"--set {text.partition('=')[0]}" for mistake in error.value.mistakes)


def test_a_mistake_of_the_file_is_not_blamed_on_set(tmp_path):
    (tmp_path / "job.toml").write_text(JOB.read_text("utf-8").replace("group_size = 8", "group_size = 1"))
    with pytest.raises(InputError) as error:
        read_spec(tmp_path / "job.toml", overrides=["update.beta=0.01"]).build()
    assert [mistake.where.rpartition(": ")[2] for mistake in error.value.mistakes] == ["rollout.group_size"]


def test_a_reward_that_is_not_there_is_refused():
    with pytest.raises(InputError, match=r"the next one is reward\.1"):
        read_spec(JOB, overrides=["reward.5.kind=math"])


def test_compare_says_that_the_algorithm_has_no_effect():
    done = run("compare", "--model", "7b", "--gpu", "h100-sxm", "--set", "algorithm=ppo")
    assert done.returncode == 2
    assert "compare plans every algorithm" in done.stderr


def test_a_model_type_that_is_no_string_is_shown(tmp_path):
    (tmp_path / "config.json").write_text('{"model_type": 3}')
    done = run("plan", str(JOB), "--set", f"policy.model={json.dumps(str(tmp_path / 'config.json'))}")
    assert "model_type: is 3, must be a string" in done.stderr


@pytest.mark.parametrize("arguments", [("plan", str(JOB)), ("plan", str(JOB), "--set", "update.compiled=3")])
def test_messages_spell_values_as_toml_does(arguments):
    done = run(*arguments)
    assert not [word for word in ("True", "False", "None", "{'", "NoneType") if word in done.stdout + done.stderr]


def test_explain_without_a_row_lists_them():
    done = run("explain", str(JOB))
    assert done.returncode == 0
    assert "update/policy/optimizer-moments" in done.stdout
    assert "--row" in done.stdout.splitlines()[-1]


def test_the_fix_for_tensor_ranks_divides_heads_and_gpus():
    done = run("plan", str(JOB), "--set", "layout.tensor=8")
    assert "tensor = 4" in done.stderr  # 28 heads, 8 GPUs


@pytest.mark.parametrize("after_s", [0.02, 0.08, 0.2])
def test_ctrl_c_is_quiet_at_any_moment(after_s):
    command = [sys.executable, "-m", "headcount", "backtest", "evidence/published.jsonl"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=ROOT) as process:
        time.sleep(after_s)
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=60)
    assert b"headcount/cli.py" not in errors
    assert process.returncode in (130, -signal.SIGINT, 1)
