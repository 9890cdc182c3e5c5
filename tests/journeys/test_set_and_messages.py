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
from headcount.facts.config_file import shown
from headcount.job.load import read_spec

ROOT = Path(__file__).resolve().parents[2]
JOB = ROOT / "configs/plan/grpo-7b-checker.toml"
PYTHON_SPELLINGS = ("True", "False", "None", "{'", "NoneType")


def run(*arguments):
    command = [sys.executable, "-m", "headcount", *arguments]
    return subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=120, check=False)


def python(code):
    """A bare interpreter on src/: no site packages, so that what loads is ours."""
    command = [sys.executable, "-S", "-c", f"import sys; sys.path.insert(0, {str(ROOT / 'src')!r})\n{code}"]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def blamed(*sets, job=JOB):
    """Where the mistakes of a job with these overrides are said to be."""
    with pytest.raises(InputError) as error:
        read_spec(job, overrides=sets).build(gpus=8)
    return [mistake.where for mistake in error.value.mistakes]


# --- what --set reaches ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "path", "value"),
    [
        ("reward.kind=code", "reward", [{"kind": "code"}]),
        ("reward.0.kind=code", "reward", [{"kind": "code"}]),
        ("reward.1.kind=exact", "reward", [{"kind": "math"}, {"kind": "exact"}]),
        ('reward.0={kind = "length"}', "reward", [{"kind": "length"}]),
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


def test_set_makes_a_lora_policy_with_a_cached_reference():
    dpo = ROOT / "configs/plan/dpo-live.toml"
    job = read_spec(dpo, overrides=["policy.tuning=lora", "reference.placement=cached"]).build(gpus=8)
    assert job.policy.adapter is not None
    assert {network.placement for network in job.networks.values() if network.role == "reference"} == {"cached"}


def test_a_reward_that_is_not_there_is_refused():
    with pytest.raises(InputError, match=r"the next one is reward\.1"):
        read_spec(JOB, overrides=["reward.5.kind=math"])


def test_a_reward_without_a_number_is_refused_where_there_are_two():
    with pytest.raises(InputError, match=r"reward\.0 to reward\.1: say which"):
        read_spec(JOB, overrides=["reward.1.kind=exact", "reward.kind=code"])


# --- who is blamed --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        "layout.x=1",
        "layout.tensor=3",
        "layout.pipeline=3",  # a relation of [layout], which the file does not have
        "layout.groups.aside.gpus=4",  # nobody sits there
        "layout.roles.reference=nowhere",
        "policy.model=nobody/none",
        "reward.kind=foo",
        "reward.1.weight=2",  # no kind
        "update.passes=none",
        f"policy.{'a' * 200}=1",
        f"layout.groups.{'a.' * 5000}x=1",
    ],
)
def test_a_mistake_of_set_is_not_blamed_on_the_file(text):
    key = text.partition("=")[0]
    assert set(blamed(text)) == {f"--set {key if len(key) <= 60 else f'{key[:57]}…'}"}


def test_of_two_overrides_of_one_table_the_wrong_one_is_named():
    assert blamed("reward.0.kind=foo", "reward.0.weight=2") == ["--set reward.0.kind"]


@pytest.mark.parametrize("beside", ["update.beta=0.01", "rollout.prompts_per_step=64", "reward.0.weight=2"])
def test_a_mistake_of_the_file_is_not_blamed_on_set(tmp_path, beside):
    (tmp_path / "job.toml").write_text(JOB.read_text("utf-8").replace("group_size = 8", "group_size = 1"))
    assert blamed(beside, job=tmp_path / "job.toml") == [f"{tmp_path / 'job.toml'}: rollout.group_size"]


def test_what_the_file_lacks_is_not_blamed_on_set(tmp_path):
    (tmp_path / "job.toml").write_text('algorithm = "grpo"\n[policy]\nmodel = "7b"\n')
    assert blamed("hardware.gpus=8", job=tmp_path / "job.toml") == [f"{tmp_path / 'job.toml'}: hardware.gpu"]


def test_a_table_of_the_file_that_set_changed_names_both(tmp_path):
    (tmp_path / "job.toml").write_text(JOB.read_text("utf-8") + "[layout]\npipeline = 2\n")
    where = f"{tmp_path / 'job.toml'}: layout (with --set layout.context)"
    assert blamed("layout.context=3", job=tmp_path / "job.toml") == [where]


@pytest.mark.parametrize(
    ("option", "value", "where"),
    [
        ("--gpu", "nope", "--gpu: "),
        ("--price", "nan", "--price: "),
        ("--observed", "foo=3", "--observed foo: "),
        ("--set", "hardware.gpu=nope", "--set hardware.gpu: "),
        ("--set", "layout.tensor", "--set layout.tensor: is not key=value"),
        ("--set", "=4", "--set =4: is not key=value"),
    ],
)
def test_the_option_that_was_written_is_named(option, value, where):
    done = run("plan", str(JOB), option, value)
    assert done.returncode == 2
    assert done.stderr.startswith(where)


def test_compare_says_that_the_algorithm_has_no_effect():
    done = run("compare", "--model", "7b", "--gpu", "h100-sxm", "--set", "algorithm=ppo")
    assert done.returncode == 2
    assert "compare plans every algorithm" in done.stderr
    assert "headcount plan" in done.stderr


# --- how values are spelt -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "text"), [(3, "is 3"), (None, "is null"), (True, "is true"), ([1], "is a list of 1")]
)
def test_a_model_type_that_is_no_string_is_shown(tmp_path, value, text):
    (tmp_path / "config.json").write_text(json.dumps({"model_type": value}))
    with pytest.raises(InputError, match=f"model_type: {text}, must be a string"):
        read_spec(JOB, overrides=[f"policy.model={json.dumps(str(tmp_path / 'config.json'))}"])


def test_a_model_type_that_is_not_there_is_missing(tmp_path):
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(InputError, match="model_type: is missing"):
        read_spec(JOB, overrides=[f"policy.model={json.dumps(str(tmp_path / 'config.json'))}"])


@pytest.mark.parametrize(("value", "text"), [(True, "true"), (False, "false"), (None, "null"), (0, "0"), (1, "1")])
def test_values_of_a_config_are_spelt_as_json(value, text):
    assert shown(value) == text


@pytest.mark.parametrize("arguments", [("plan", str(JOB)), ("plan", str(JOB), "--set", "update.compiled=3")])
def test_messages_spell_values_as_toml_does(arguments):
    done = run(*arguments)
    assert not [word for word in PYTHON_SPELLINGS if word in done.stdout + done.stderr]


@pytest.mark.parametrize(
    "text",
    [
        "policy.model=true",
        "update.passes=true",
        "layout.tensor={a = true}",
        "layout=false",
        "reward=true",
        "reward.0.kind=false",
        "reward.0.weight=[true]",
        "layout.groups.aside=true",
        "policy.adapter.targets=[false]",
        "rollout.completion_tokens={mean = true, max = 3}",
        "nope=true",
    ],
)
def test_a_wrong_value_is_spelt_as_toml(text):
    with pytest.raises(InputError) as error:
        read_spec(JOB, overrides=[text])
    assert not [word for word in PYTHON_SPELLINGS if word in str(error.value)]


def test_the_fix_for_tensor_ranks_divides_heads_and_gpus():
    done = run("plan", str(JOB), "--set", "layout.tensor=8")
    assert "tensor = 4" in done.stderr  # 28 heads, 8 GPUs


# --- explain, Ctrl-C ------------------------------------------------------------------------------------------------


def test_explain_without_a_row_lists_them():
    done = run("explain", str(JOB))
    assert done.returncode == 0
    assert "update/policy/optimizer-moments" in done.stdout
    assert "--row" in done.stdout.splitlines()[-1]


INTERRUPTED_IMPORT = """
class Interrupt:
    def find_spec(self, name, path=None, target=None):
        if name == "headcount.cli":
            raise KeyboardInterrupt
sys.meta_path.insert(0, Interrupt())
from headcount.__main__ import main
main()
"""
# Python prints an interrupt inside a callback of its own and goes on.
INTERRUPTED_CALLBACK = """
import types, weakref
def interrupt(_):
    raise KeyboardInterrupt
def run():
    target = type("Target", (), {})()
    watch = weakref.ref(target, interrupt)
    del target
    print("went on")
sys.modules["headcount.cli"] = types.SimpleNamespace(main=run)
from headcount.__main__ import main
main()
"""


@pytest.mark.parametrize("code", [INTERRUPTED_IMPORT, INTERRUPTED_CALLBACK])
def test_ctrl_c_while_modules_load_is_quiet(code):
    done = python(code)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")


def test_little_loads_before_ctrl_c_is_quiet():
    done = python("import headcount.__main__\nprint(*sys.modules)")
    assert "headcount.__main__" in done.stdout.split()
    assert not {"typing", "re", "enum", "typer", "headcount.cli"} & set(done.stdout.split())


@pytest.mark.parametrize("after_s", [0.05, 0.1, 0.2])
def test_ctrl_c_shows_no_line_of_headcount(after_s):
    command = [sys.executable, "-m", "headcount", "backtest", "evidence/published.jsonl"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=ROOT) as process:
        time.sleep(after_s)
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=60)
    assert b"headcount/" not in errors
    # 1 and -SIGINT: on a busy machine Python itself was still starting.
    assert process.returncode in (130, -signal.SIGINT, 1)
