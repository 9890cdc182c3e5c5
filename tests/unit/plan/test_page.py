"""The page: one file that asks for nothing, every ledger row with its derivation, nothing that a name can break."""

from __future__ import annotations

from html import escape
from html.parser import HTMLParser

import pytest
from plan_jobs import spec

from headcount.plan.compare import VARIANTS, compare
from headcount.plan.page import comparison_page, plan_page
from headcount.plan.planner import plan
from headcount.units import bytes_text

VOID = {"meta", "br"}
LOADING = {"script", "link", "img", "iframe", "object", "embed", "base", "form", "video", "audio", "source"}


class Reader(HTMLParser):
    """Open tags, tags seen, addresses, the text of each table cell and of each line that opens."""

    def __init__(self):
        super().__init__()
        self.open, self.seen, self.addresses, self.cells, self.summaries = [], set(), [], [], []

    def handle_starttag(self, tag, attrs):
        self.seen.add(tag)
        self.addresses += [value for name, value in attrs if name in ("src", "href", "action", "data", "srcset")]
        if tag not in VOID:
            self.open.append(tag)
        for which, texts in (("td", self.cells), ("summary", self.summaries)):
            if tag == which:
                texts.append("")

    def handle_startendtag(self, tag, attrs):
        self.seen.add(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        for which, texts in (("td", self.cells), ("summary", self.summaries)):
            if which in self.open:
                texts[-1] += data


def read(page: str) -> Reader:
    reader = Reader()
    reader.feed(page)
    reader.close()
    assert reader.open == []
    return reader


@pytest.fixture(scope="module")
def grpo():
    return plan(spec().build())


@pytest.fixture(scope="module")
def comparison():
    shared = {"policy": {"model": "Qwen/Qwen2.5-7B-Instruct"}, "hardware": {"gpu": "h100-sxm"}}
    return compare(shared, variants=[VARIANTS[0], *VARIANTS[-2:]])


@pytest.mark.parametrize("which", ["plan", "comparison"])
def test_a_page_asks_for_nothing_outside_itself(which, grpo, comparison):
    page = plan_page(grpo) if which == "plan" else comparison_page(comparison)
    reader = read(page)
    assert not reader.seen & LOADING
    assert reader.addresses == []
    assert "@import" not in page
    assert "url(" not in page


@pytest.mark.parametrize("which", ["plan", "comparison"])
def test_a_page_is_for_light_dark_phones_and_paper(which, grpo, comparison):
    page = plan_page(grpo) if which == "plan" else comparison_page(comparison)
    for rule in ("prefers-color-scheme:dark", "max-width:640px", "@media print", 'name="viewport"', 'class="phone"'):
        assert rule in page


def test_every_row_of_the_ledger_opens_to_its_derivation(grpo):
    page = plan_page(grpo)
    summaries = read(page).summaries
    for row in grpo.rows():
        if row.bytes:
            assert f"{row.key} {bytes_text(row.bytes)} {row.basis}" in summaries
    assert "7,615,616,512 × 2" in page  # the engine's weights: parameters × bytes


def test_a_comparison_holds_the_rows_of_each_variant(comparison):
    summaries = read(comparison_page(comparison)).summaries
    for each in comparison.compared:
        for row in each.smallest.deciding.rows:
            assert f"{row.key} {bytes_text(row.bytes)} {row.basis}" in summaries


def test_time_money_and_settings_are_in_the_tables(grpo):
    cells = read(plan_page(grpo)).cells
    assert grpo.run.name in cells
    assert any(cell.startswith("$") for cell in cells)
    assert {key for key, *_ in grpo.settings} <= set(cells)


def test_what_does_not_fit_says_so_and_what_to_try():
    short = plan(spec(hardware__gpus=1).build())
    page = plan_page(short)
    assert "✗ does not fit" in page
    assert short.fixes
    assert all(f"<code>{escape(fix)}</code>" in page for fix in short.fixes)


def test_a_card_without_speed_has_a_page():
    page = plan_page(plan(spec(hardware__gpu="h20-96gb").build()))
    assert "Time: unknown" in page
    read(page)


def test_names_cannot_break_the_page():
    page = plan_page(plan(spec(name="</title><script>alert(1)</script>").build()))
    assert "<script" not in page
    assert "&lt;script&gt;" in page
    read(page)


def test_gb_and_both_are_printed_on_request(grpo):
    assert f"{grpo.deciding.bytes / 1e9:,.2f} GB" in plan_page(grpo, unit="GB")
    assert "GiB (" in plan_page(grpo, unit="both")
