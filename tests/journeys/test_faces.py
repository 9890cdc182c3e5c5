"""Pictures, pages, Markdown and completion as a user asks for them: files written whole, refusals with what to do."""

from __future__ import annotations

import os
import subprocess
import sys
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
JOB = "configs/plan/ppo-7b.toml"
COMPARE = ("compare", "--model", "7b", "--gpu", "h100-sxm")
PNG = b"\x89PNG"


def headcount(*arguments: str, **more) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "headcount.cli", *arguments]
    return subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=120, check=False, **more)


def test_a_plan_has_all_its_faces_in_one_go(tmp_path):
    picture, page = tmp_path / "p.png", tmp_path / "p.html"
    done = headcount("plan", JOB, "--chart", str(picture), "--html", str(page), "--markdown")
    assert done.returncode == 0, done.stderr
    assert picture.read_bytes().startswith(PNG)
    assert page.read_text("utf-8").startswith("<!doctype html>")
    assert done.stdout.startswith("## ppo-7b")
    assert "wrote" in done.stderr
    assert "wrote" not in done.stdout  # the table can still be piped
    assert sorted(path.name for path in tmp_path.iterdir()) == ["p.html", "p.png"]


def test_a_comparison_has_all_its_faces(tmp_path):
    picture, page = tmp_path / "c.svg", tmp_path / "c.html"
    done = headcount(*COMPARE, "--chart", str(picture), "--html", str(page), "--markdown")
    assert done.returncode == 0, done.stderr
    names = ("PPO-RLHF", "GRPO, checker", "DPO, live reference", "Reward model", "SFT")
    words = [each.text for each in ET.fromstring(picture.read_text("utf-8")).iter("{http://www.w3.org/2000/svg}text")]
    for name in names:
        assert words.count(name) == 2  # over its bytes and over its hours
        assert f"| {name} |" in done.stdout
        assert name in page.read_text("utf-8")


def test_trade_offs_are_drawn(tmp_path):
    done = headcount("search", JOB, "--gpus", "8,16", "--keep", "1", "--chart", str(tmp_path / "front.svg"))
    assert done.returncode == 0, done.stderr
    assert "GPUs against hours and money" in (tmp_path / "front.svg").read_text("utf-8")


def test_a_job_that_does_not_fit_is_drawn_and_keeps_its_exit_code(tmp_path):
    done = headcount("plan", "configs/plan/sft.toml", "--gpus", "1", "--chart", str(tmp_path / "p.svg"))
    assert done.returncode == 4
    assert "does not fit" in (tmp_path / "p.svg").read_text("utf-8")


def test_svg_and_page_need_no_matplotlib(tmp_path):
    (tmp_path / "matplotlib.py").write_text("raise ImportError('not here')")
    outside = {**os.environ, "PYTHONPATH": str(tmp_path)}
    both = ("--chart", str(tmp_path / "p.svg"), "--html", str(tmp_path / "p.html"))
    assert headcount("plan", JOB, *both, env=outside).returncode == 0
    refused = headcount("plan", JOB, "--chart", str(tmp_path / "p.png"), env=outside)
    assert refused.returncode == 2
    assert "pip install 'headcount[charts]'" in refused.stderr


@pytest.mark.parametrize(
    ("name", "why"),
    [("p.gif", "no picture"), ("p", "without suffix"), ("no/p.svg", "mkdir -p"), ("folder.svg", "is a folder")],
)
@pytest.mark.parametrize("verb", [("plan", JOB), COMPARE], ids=["plan", "compare"])
def test_a_chart_that_cannot_be_written_is_refused(tmp_path, verb, name, why):
    (tmp_path / "folder.svg").mkdir()
    done = headcount(*verb, "--chart", str(tmp_path / name))
    assert done.returncode == 2
    assert why in done.stderr
    assert "Traceback" not in done.stderr
    assert len(done.stderr.splitlines()) <= 2
    assert done.stdout == ""


def test_a_page_that_cannot_be_written_is_refused(tmp_path):
    done = headcount("plan", JOB, "--html", str(tmp_path / "no" / "p.html"))
    assert done.returncode == 2
    assert "mkdir -p" in done.stderr


@pytest.mark.parametrize("many", [("--gpus", "8,16"), ("--levers",)])
def test_a_face_of_several_plans_is_refused_and_not_forgotten(tmp_path, many):
    done = headcount("plan", JOB, *many, "--chart", str(tmp_path / "p.svg"))
    assert done.returncode == 2
    assert "--chart: shows one plan" in done.stderr
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_is_printed_for_each_shell(shell):
    done = headcount("completion", shell)
    assert done.returncode == 0, done.stderr
    assert "_HEADCOUNT_COMPLETE" in done.stdout


def test_bash_takes_the_script_and_completes_a_verb():
    script = headcount("completion", "bash").stdout
    command = f"{script}\ncomplete -p headcount"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    asked = {**os.environ, "_HEADCOUNT_COMPLETE": "complete_bash", "COMP_WORDS": "headcount comp", "COMP_CWORD": "1"}
    offered = subprocess.run(
        [Path(sys.executable).with_name("headcount")],
        capture_output=True,
        text=True,
        env=asked,
        timeout=60,
        check=False,
    )
    assert offered.stdout.split() == ["compare", "completion"]


def test_an_unknown_shell_is_refused_with_those_that_are_known():
    done = headcount("completion", "tcsh")
    assert done.returncode == 2
    assert "bash, zsh, fish" in done.stderr
