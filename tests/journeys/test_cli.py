"""The command line as a user meets it: fresh processes, real models, exit codes, JSON, no torch."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
CONFIGS = sorted((ROOT / "configs/plan").glob("*.toml"))


def headcount(*arguments: str, **more) -> subprocess.CompletedProcess[str]:
    """Run the command in a process of its own."""
    command = [sys.executable, "-m", "headcount.cli", *arguments]
    return subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=120, check=False, **more)


def test_compare_puts_all_algorithms_side_by_side():
    done = headcount("compare", "--model", "Qwen/Qwen2.5-7B-Instruct", "--gpu", "h100-sxm", "--json")
    assert done.returncode == 0, done.stderr
    comparison = json.loads(done.stdout)
    assert comparison["schema"] == "headcount.compare/1"
    fewest = {variant["name"]: variant["fewest"] for variant in comparison["variants"]}
    roles = {name: {resident["role"] for resident in plan["headcount"]} for name, plan in fewest.items()}
    assert roles["PPO-RLHF"] == {"policy", "critic", "reference", "reward", "generator"}
    assert roles["GRPO, no KL"] == {"policy", "generator"}
    assert roles["DPO, live reference"] == {"policy", "reference"}
    assert roles["SFT"] == {"policy"}
    # DPO with a live reference holds at least what it holds without: the cached variant never needs more GPUs.
    assert fewest["DPO, cached reference"]["gpus"] <= fewest["DPO, live reference"]["gpus"]
    assert fewest["GRPO, no KL"]["gpus"] <= fewest["PPO-RLHF"]["gpus"]


def test_reward_retrains_adds_a_line_for_each_run():
    base = ["compare", "--model", "Qwen/Qwen2.5-7B", "--gpu", "h100", "--json"]
    once, thrice = (json.loads(headcount(*base, *extra).stdout) for extra in ([], ["--reward-retrains", "2"]))

    def lines(comparison, name):
        stages = [stage for v in comparison["variants"] if v["name"] == name for stage in v["pipeline"]]
        return [stage["name"] for stage in stages if not stage["around"]]

    assert lines(once, "PPO-RLHF") == ["reward-model training", "PPO"]
    assert len(lines(thrice, "PPO-RLHF")) == 6
    assert lines(once, "GRPO, checker") == lines(thrice, "GRPO, checker") == ["GRPO"]


@pytest.mark.parametrize("config", CONFIGS, ids=lambda path: path.stem)
def test_every_shipped_job_plans(config):
    done = headcount("plan", str(config), "--json")
    assert done.returncode in (0, 3, 4), done.stderr
    plan = json.loads(done.stdout)
    assert plan["schema"] == "headcount.plan/1"
    assert {"fits": 0, "uncertain": 3, "does not fit": 4}[plan["verdict"]] == done.returncode
    # The deciding moment is the largest, and each moment is the sum of its rows.
    for footprint in plan["footprints"]:
        for moment in footprint["moments"]:
            assert moment["bytes"] == sum(row["bytes"] for row in moment["rows"])


def test_verdicts_are_exit_codes():
    job = str(ROOT / "configs/plan/ppo-7b.toml")
    assert headcount("plan", job).returncode == 0
    assert headcount("plan", job, "--gpus", "1").returncode == 4


def test_what_does_not_fit_says_where_and_how_to_mend_it():
    done = headcount("plan", str(ROOT / "configs/plan/sft.toml"), "--gpus", "1")
    assert done.returncode == 4
    assert done.stdout.startswith("DOES NOT FIT")
    assert "update/policy" in done.stdout
    assert "saves" in done.stdout


def test_planning_and_explaining_load_no_torch():
    code = (
        "import sys; from headcount.cli import app\n"
        "import headcount.plan.compare, headcount.plan.report, headcount.plan.compare_view\n"
        "import headcount.plan.explain, headcount.measure.backtest\n"
        "assert not {'torch', 'transformers', 'peft'} & set(sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr


def test_compare_stays_under_200_megabytes():
    # VmHWM starts anew with the program; ru_maxrss would carry over the size of the test runner that forked it.
    code = (
        "from headcount.plan.compare import compare\n"
        "compare({'policy': {'model': 'Qwen/Qwen2.5-7B'}, 'hardware': {'gpu': 'h100'}})\n"
        "print(next(line.split()[1] for line in open('/proc/self/status') if line.startswith('VmHWM')))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert int(done.stdout) * 1024 < 200e6


@pytest.mark.parametrize("name", ["ppo", "grpo", "dpo", "reward-model", "sft"])
def test_explain_an_algorithm(name):
    done = headcount("explain", name)
    assert done.returncode == 0, done.stderr
    assert "what removes it" in done.stdout


def test_explain_ppo_prints_the_naive_count_as_naive():
    # Equal copies at 10 GB: PPO 40 GB, DPO 20 GB, and what that leaves out.
    assert "4 equal copies of 10 GB = 40 GB. It leaves out" in headcount("explain", "ppo").stdout
    assert "2 equal copies of 10 GB = 20 GB. It leaves out" in headcount("explain", "dpo").stdout


def test_explain_a_row_fills_the_numbers_in():
    job = str(ROOT / "configs/plan/sft.toml")
    done = headcount("explain", job, "--row", "update/policy/logits")
    assert done.returncode == 0, done.stderr
    assert "× 152,064" in done.stdout  # Qwen2.5-7B's vocabulary
    assert "Fed by:" in done.stdout


def test_explain_says_why_score_has_no_kv_cache():
    job = str(ROOT / "configs/plan/ppo-7b.toml")
    done = headcount("explain", job, "--row", "score/reference/kv-cache")
    assert done.returncode == 2
    assert "keeps nothing for a next token" in done.stderr


@pytest.mark.parametrize("kind", ["gpus", "models", "prices", "precisions", "optimizers", "overheads", "recipes"])
def test_facts_have_sources(kind):
    rows = json.loads(headcount("facts", kind, "--json").stdout)["rows"]
    assert rows
    assert all(row["source"] for row in rows)


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["plan", "no-such.toml"], "no such file"),
        (["plan", "configs"], "is a folder"),
        (["plan", "LICENSE"], "not TOML"),
        (["compare", "--model", "Qwen/Qwen2.5-7B", "--gpu", "a100"], "could be several cards"),
        (["compare", "--model", "Qwen/Qwen2.5-7B", "--gpu", "h1000"], "is not in gpus.toml"),
        (["facts", "gpu"], "did you mean gpus"),
        (["explain", "pppo"], "neither a job file nor an algorithm"),
        (["plan", "configs/plan/sft.toml", "--set", "layout.tensr=2"], "did you mean tensor"),
        (["plan", "configs/plan/sft.toml", "--set", "layout.tensor=3", "--gpus", "3"], "does not divide the 28 heads"),
        (["plan", "configs/plan/sft.toml", "--units", "mb"], "none of gib, gb, both"),
    ],
    ids=lambda value: " ".join(value)[:40] if isinstance(value, list) else "",
)
def test_a_mistake_is_one_message_and_exit_code_2(arguments, expected):
    done = headcount(*arguments)
    assert done.returncode == 2, (done.stdout, done.stderr)
    assert expected in done.stderr
    assert "Traceback" not in done.stderr


def test_a_closed_pipe_is_no_accident():
    done = subprocess.run(
        f"{sys.executable} -m headcount.cli facts models | head -1", shell=True, capture_output=True, text=True,
        cwd=ROOT, timeout=60, check=False,
    )  # fmt: skip
    assert "Traceback" not in done.stderr


def test_colour_is_never_the_only_carrier():
    plain = headcount("plan", str(ROOT / "configs/plan/ppo-7b.toml"), "--no-color")
    assert "\x1b[" not in plain.stdout
    assert "P policy" in plain.stdout


def test_a_time_is_explained_as_a_row_is():
    job = "configs/plan/grpo-7b-checker.toml"
    plan = json.loads(headcount("plan", job, "--json").stdout)
    run = next(stage for stage in plan["stages"] if stage["name"] == "GRPO")
    listed = headcount("explain", job).stdout
    for name, part in run["step_s"].items():
        key = f"seconds/grpo/{name.replace(' ', '-')}"
        assert key in listed
        found = json.loads(headcount("explain", job, "--row", key, "--json").stdout)
        assert found["p50"] == part["p50"]
        assert part["because"] in headcount("explain", job, "--row", key).stdout
    missed = headcount("explain", job, "--row", "seconds/grpo/generat")
    assert missed.returncode == 2
    assert "did you mean seconds/grpo/generate" in missed.stderr


def test_a_measurement_says_what_it_changed():
    seen = ["--observed", "decode_tokens_per_s=9000,scope=aggregate,concurrency=512"]
    done = headcount("plan", "configs/plan/grpo-7b-checker.toml", *seen)
    assert "Measured: decode" in done.stdout
    assert "→ 9,000 tokens/s (aggregate, 512 at once)" in " ".join(done.stdout.split())
