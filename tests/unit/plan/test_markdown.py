"""Markdown: tables whose rows all have the header's cells, figures that are the plan's, names that break nothing."""

from __future__ import annotations

import re

import pytest
from plan_jobs import spec

from headcount.plan.compare import VARIANTS, compare
from headcount.plan.markdown import comparison_markdown, plan_markdown
from headcount.plan.planner import plan
from headcount.units import bytes_text


def cells(line: str) -> list[str]:
    return [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]


def tables(text: str) -> list[list[list[str]]]:
    blocks = [block.splitlines() for block in text.split("\n\n") if block.startswith("|")]
    return [[cells(line) for line in block if line.startswith("|")] for block in blocks]


@pytest.fixture(scope="module")
def grpo():
    return plan(spec().build())


@pytest.fixture(scope="module")
def comparison():
    shared = {"policy": {"model": "Qwen/Qwen2.5-7B-Instruct"}, "hardware": {"gpu": "h100-sxm"}}
    return compare(shared, variants=[VARIANTS[0], *VARIANTS[-2:]])


@pytest.mark.parametrize("name", ["|", "a | b", "<script>", "[x](http://x)"])
def test_every_row_of_a_table_has_as_many_cells_as_its_header(name, comparison):
    text = plan_markdown(plan(spec(name=name).build()))
    for table in (*tables(text), *tables(comparison_markdown(comparison))):
        assert len(table) > 2
        assert len({len(row) for row in table}) == 1
    assert "<script" not in text
    assert "[x](" not in text


def test_the_peak_of_each_phase_is_a_row(grpo):
    _, peaks, _ = tables(plan_markdown(grpo))
    phases = {row[0]: row[3] for row in peaks[2:]}
    assert phases["generate"] == bytes_text(grpo.deciding.bytes)
    assert list(phases) == ["load", "generate", "score", "update", "sync", "save", "eval"]


def test_stages_add_up_to_the_last_line(grpo):
    stages = tables(plan_markdown(grpo))[-1]
    parts = [float(row[4]) for row in stages[2:]]
    # each is rounded to a tenth
    assert sum(parts[:-1]) == pytest.approx(parts[-1], abs=0.05 * len(parts))


def test_all_variants_stand_in_both_tables(comparison):
    fewest, common, pipeline = tables(comparison_markdown(comparison))
    names = [each.variant.name for each in comparison.compared]
    assert [row[0] for row in fewest[2:]] == [row[0] for row in common[2:]] == [row[0] for row in pipeline[2:]] == names
    assert {row[3] for row in common[2:]} == {str(comparison.common_gpus)}


def test_what_does_not_fit_lists_what_to_try():
    short = plan(spec(hardware__gpus=1).build())
    text = plan_markdown(short)
    assert text.startswith("## grpo")
    assert "**does not fit**" in text
    assert all(f"- try `{fix}`" in text for fix in short.fixes)


def test_a_card_without_speed_says_so():
    assert "Time: unknown" in plan_markdown(plan(spec(hardware__gpu="h20-96gb").build()))
