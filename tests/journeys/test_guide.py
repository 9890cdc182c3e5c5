"""The guide teaches with numbers that commands print: every figure with a unit stands in an output of its page.

That the outputs are current is the README's test (`scripts/readme --check` reads the guide too).
"""

import doctest
import re
from pathlib import Path

import pytest

GUIDE = Path(__file__).parents[2] / "docs/guide"
PAGES = sorted(GUIDE.glob("*.md"))
BLOCK = re.compile(r"```(console|pycon)\n(.*?)```", re.DOTALL)
# 7.6 B, 24 GB, 3,350 GB/s, $93.23: what a reader would take away as a fact
FIGURE = re.compile(r"\$\d[\d,.]*\d|\d[\d,.]*\s?(?:GiB|GB/s|GB|TFLOP/s|tokens/s|hours|min|s)(?![\w/])")
# Names, not results: a card's class and the year-free definitions that the page itself derives from.
NAMES = {"80 GB", "24 GB"}
LINK = re.compile(r"\]\((?!http)([^)#]+)")


def test_the_guide_has_its_chapters():
    assert {page.stem for page in PAGES} == {
        "README", "networks", "bytes", "time", "levers", "choosing", "questions", "revision",
    }  # fmt: skip


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_every_calculation_gives_what_is_printed(page):
    text = page.read_text("utf-8")
    lines = "\n".join(body for kind, body in BLOCK.findall(text) if kind == "pycon")
    test = doctest.DocTestParser().get_doctest(lines, {}, page.name, str(page), 0)
    result = doctest.DocTestRunner().run(test)
    assert result.failed == 0
    assert result.attempted == len(re.findall(r"^>>> ", text, re.MULTILINE))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_every_figure_stands_in_an_output_of_its_page(page):
    text = page.read_text("utf-8")
    printed = "\n".join(body for _, body in BLOCK.findall(text)).replace("_", ",")
    figures = {figure for figure in FIGURE.findall(BLOCK.sub("", text)) if figure not in NAMES}
    assert sorted(figure for figure in figures if not _stands_in(printed, re.findall(r"[\d,.]*\d", figure)[0])) == []


def _stands_in(printed, number):
    """As a number of its own, not as digits of another."""
    return re.search(rf"(?<![\d.,]){re.escape(number)}(?![\d]|[.,]\d)", printed) is not None


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_no_command_of_the_guide_prints_an_error(page):
    refused = "--observed decode_tokens_per_s=9000\n"  # shown on purpose
    for kind, body in BLOCK.findall(page.read_text("utf-8")):
        if kind == "console" and refused not in body:
            assert not re.search(r"^(Usage|Error|\d+ mistakes)|    fix: ", body, re.MULTILINE), body
            assert body.count("\n") > 1, body


@pytest.mark.parametrize("page", [*PAGES, GUIDE.parents[1] / "README.md"], ids=lambda page: page.stem)
def test_links_lead_somewhere(page):
    assert [link for link in LINK.findall(page.read_text("utf-8")) if not (page.parent / link).exists()] == []
