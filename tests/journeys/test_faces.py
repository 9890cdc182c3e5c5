"""Pictures, pages and Markdown: written whole, self-contained, escaped, and refused with what to do."""

from __future__ import annotations

import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import pytest

import headcount
from headcount.errors import InputError
from headcount.plan.chart import DARK, LIGHT, figure_of, save, svg
from headcount.plan.compare import compare
from headcount.plan.markdown import comparison_markdown, plan_markdown
from headcount.plan.page import comparison_page, plan_page

ROOT = Path(__file__).resolve().parents[2]
JOB = ROOT / "configs/plan/ppo-7b.toml"


def run(*arguments):
    command = [sys.executable, "-m", "headcount.cli", *arguments]
    return subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=120, check=False)


@pytest.fixture(scope="module")
def plan():
    return headcount.plan(headcount.read_job(JOB))


@pytest.fixture(scope="module")
def comparison():
    return compare({"policy": {"model": "7b"}, "hardware": {"gpu": "h100-sxm"}})


class Tags(HTMLParser):
    """Open tags that were never closed, and every address."""

    def __init__(self):
        super().__init__()
        self.open, self.addresses = [], []

    def handle_starttag(self, tag, attrs):
        if tag not in ("meta", "br", "img", "link"):
            self.open.append(tag)
        self.addresses += [value for name, value in attrs if name in ("src", "href") and value]

    def handle_startendtag(self, tag, attrs):
        self.addresses += [value for name, value in attrs if name in ("src", "href") and value]

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


@pytest.mark.parametrize("make", ["plan", "comparison"])
def test_a_page_closes_its_tags_and_asks_for_nothing_outside(make, plan, comparison):
    page = plan_page(plan) if make == "plan" else comparison_page(comparison)
    tags = Tags()
    tags.feed(page)
    assert tags.open == []
    assert all(address.startswith("#") for address in tags.addresses)
    assert "prefers-color-scheme:dark" in page
    assert 'class="light"' in page
    assert 'class="dark"' in page


def test_a_page_shows_the_derivation_of_every_row_of_the_deciding_moment(plan):
    page = plan_page(plan)
    assert all(f"<code>{row.key}</code>" in page for row in plan.deciding.rows if row.bytes)


def test_hostile_names_are_escaped(plan):
    made = headcount.read_job(JOB, overrides=['name="<script>alert(1)</script> | b"'])
    page, text = plan_page(headcount.plan(made)), plan_markdown(headcount.plan(made))
    assert "<script>" not in page
    assert "\\|" in text


def test_bars_of_a_phase_add_up_to_its_peak(plan):
    figure = figure_of([("PPO", plan)], title="")
    axis = figure.subfigs[0].axes[0]
    heights = {}
    for bar in axis.patches:
        place = round(bar.get_x() + bar.get_width() / 2)
        heights[place] = heights.get(place, 0.0) + bar.get_height()
    held = plan.tightest
    peaks = [moment.bytes / 2**30 for phase in type(held.deciding.phase) if (moment := held.peak_of(phase))]
    assert list(heights.values()) == pytest.approx(peaks)
    svg(figure)


def test_both_themes_draw_the_same_picture_in_other_ink(plan):
    light, dark = (svg(figure_of([("PPO", plan)], title="x", theme=theme)) for theme in (LIGHT, DARK))
    assert LIGHT.paper in light
    assert DARK.paper in dark
    assert len(re.findall("<path", light)) == len(re.findall("<path", dark))


def test_the_command_writes_charts_and_pages(tmp_path):
    done = run("plan", str(JOB), "--chart", str(tmp_path / "p.png"), "--html", str(tmp_path / "p.html"), "--markdown")
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "p.png").read_bytes().startswith(b"\x89PNG")
    assert (tmp_path / "p.html").read_text("utf-8").startswith("<!doctype html>")
    assert done.stdout.startswith("## ppo-7b")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["p.html", "p.png"]


@pytest.mark.parametrize(
    ("name", "why"), [("p.gif", "no picture"), ("p", "no suffix"), ("no/p.svg", "cannot be written")]
)
def test_a_chart_that_cannot_be_written_is_refused(tmp_path, name, why):
    done = run("plan", str(JOB), "--chart", str(tmp_path / name))
    assert done.returncode == 2
    assert why in done.stderr
    assert "Traceback" not in done.stderr


def test_without_matplotlib_the_error_says_what_to_install(plan, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(InputError, match=r"pip install 'headcount\[charts\]'"):
        figure_of([("PPO", plan)], title="")


def test_an_old_chart_survives_a_failed_one(tmp_path, plan):
    target = tmp_path / "p.svg"
    target.write_text("old")
    with pytest.raises(InputError):
        save(figure_of([("PPO", plan)], title=""), tmp_path / "no" / "p.svg")
    assert target.read_text() == "old"


def test_markdown_tables_have_as_many_cells_in_every_row(plan, comparison):
    for text in (plan_markdown(plan), comparison_markdown(comparison)):
        blocks = [block for block in text.split("\n\n") if block.startswith("|")]
        assert blocks
        for block in blocks:
            lines = [line for line in block.splitlines() if line.startswith("|")]
            assert len({len(re.findall(r"(?<!\\)\|", line)) for line in lines}) == 1


def test_a_card_of_unknown_speed_still_draws(tmp_path):
    done = run("plan", str(ROOT / "configs/plan/sft.toml"), "--gpus", "1", "--chart", str(tmp_path / "p.svg"))
    assert done.returncode == 4
    assert (tmp_path / "p.svg").exists()
