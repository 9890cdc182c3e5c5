"""Pictures: bars that add up, words that stay on the sheet, one colour a role, files written whole."""

from __future__ import annotations

import sys
import xml.etree.ElementTree as ET
from itertools import combinations

import pytest
from plan_jobs import spec

from headcount.errors import InputError
from headcount.plan.bytes_chart import legend, panel, ticks
from headcount.plan.chart import comparison_scene, heading, plan_panels, plan_scene, save, time_charts
from headcount.plan.compare import VARIANTS, compare
from headcount.plan.planner import plan
from headcount.plan.scene import DARK, LIGHT, Box, Scene, Stroke, Words, file_svg, page_svg, png, width_of
from headcount.plan.time_chart import hours_chart
from headcount.units import GIB
from headcount.vocabulary import Phase, Role, Verdict

SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture(scope="module")
def grpo():
    return plan(spec().build())


@pytest.fixture(scope="module")
def too_large():
    return plan(spec(hardware__gpus=1).build())


@pytest.fixture(scope="module")
def untimed():
    return plan(spec(hardware__gpu="h20-96gb").build())


@pytest.fixture(scope="module")
def split():
    return plan(spec(rollout__engine_placement="separate", rollout__engine_gpus=4).build())


def bars(scene: Scene) -> list[float]:
    """Pixels from the zero line to the top of each column of bytes, from left to right."""
    zero = max(mark.y for mark in scene.marks if isinstance(mark, Stroke))
    tops: dict[float, float] = {}
    for mark in scene.marks:
        if isinstance(mark, Box):
            middle = round(mark.x + mark.width / 2, 3)
            tops[middle] = min(mark.y, tops.get(middle, zero))
    return [zero - top for _, top in sorted(tops.items())]


def test_heights_of_the_bars_are_the_peaks_of_the_phases(grpo):
    held = grpo.tightest
    drawn = bars(panel(held, title="x", top=0, width=304))
    peaks = [moment.bytes for phase in Phase if (moment := held.peak_of(phase))]
    assert [tall / drawn[0] for tall in drawn] == pytest.approx([peak / peaks[0] for peak in peaks])


def test_a_peak_is_printed_over_its_bar_in_gib(grpo):
    words = [mark.text for mark in panel(grpo.tightest, title="x", top=0, width=304).marks if isinstance(mark, Words)]
    assert f"{grpo.deciding.bytes / GIB:.1f}" in words
    assert f"{grpo.tightest.capacity_bytes[0] / GIB:.1f}" in words
    assert "GiB" in words


def test_gb_is_said_where_it_was_asked_for(grpo):
    words = [m.text for m in panel(grpo.tightest, title="x", top=0, width=304, unit="GB").marks if isinstance(m, Words)]
    assert f"{grpo.deciding.bytes / 1e9:.1f}" in words
    assert "GB" in words


def overlaps(scene: Scene) -> list[tuple[str, str]]:
    """Pairs of words that cover each other; widths are what a narrow font needs at least."""
    boxes = []
    for mark in scene.marks:
        if isinstance(mark, Words):
            wide = 0.85 * width_of(mark.text, mark.size, bold=mark.bold)
            left = mark.x - {"start": 0, "middle": wide / 2, "end": wide}[mark.anchor]
            boxes.append((left, left + wide, mark.y - 0.7 * mark.size, mark.y, mark.text))
    return [
        (a[4], b[4]) for a, b in combinations(boxes, 2) if a[0] < b[1] and b[0] < a[1] and a[2] < b[3] and b[2] < a[3]
    ]


@pytest.mark.parametrize("name", ["grpo", "too_large", "untimed", "split"])
@pytest.mark.parametrize("width", [340, 940])
def test_no_words_cover_each_other_and_none_leave_the_sheet(name, width, request):
    made = request.getfixturevalue(name)
    for scene in (
        *plan_panels(made, width=width),
        *time_charts(made, width=width),
        hours_chart([("a", made)], title="t", width=width),
    ):
        assert overlaps(scene) == []
        for mark in scene.marks:
            if isinstance(mark, Words):
                wide = width_of(mark.text, mark.size, bold=mark.bold)
                left = mark.x - {"start": 0, "middle": wide / 2, "end": wide}[mark.anchor]
                assert left >= -2, mark.text
                assert left + wide <= scene.width + 2, mark.text


def test_the_capacity_line_lies_under_what_does_not_fit(too_large):
    scene = panel(too_large.tightest, title="x", top=0, width=304)
    line = next(mark for mark in scene.marks if isinstance(mark, Stroke) and mark.dashed)
    assert too_large.verdict is Verdict.DOES_NOT_FIT
    assert min(mark.y for mark in scene.marks if isinstance(mark, Box)) < line.y


def test_a_card_without_speed_says_so(untimed):
    assert untimed.run is None
    words = [mark.text for mark in plan_scene(untimed).marks if isinstance(mark, Words)]
    assert "Time: unknown" in words
    (row,) = [m for m in hours_chart([("a", untimed)], title="t", width=900).marks if getattr(m, "text", "") == "a"]
    assert row.y > 0


def test_every_group_of_gpus_has_a_panel(split):
    assert len(split.footprints) == 2
    assert [scene.label.split(":")[0] for scene in plan_panels(split, width=340)] == ["train", "rollout"]


def test_what_runs_beside_the_rest_gives_its_seconds_back():
    beside = plan(spec(rollout__engine_placement="separate", rollout__engine_gpus=4, rollout__staleness=1).build())
    assert beside.run is not None
    assert min(part.band.p50 for part in beside.run.step) < 0
    (said,) = [m.text for m in time_charts(beside, width=940)[0].marks if getattr(m, "text", "").startswith("−")]
    assert " to −" in said
    file_svg(plan_scene(beside))


@pytest.mark.parametrize(
    ("top", "want"), [(79.2, [0, 20, 40, 60]), (0.7, [0, 0.2, 0.4, 0.6]), (5, [0, 1, 2, 3, 4, 5]), (0, [0])]
)
def test_ticks_are_round(top, want):
    assert ticks(top) == pytest.approx(want)


def test_a_title_folds_and_a_path_without_spaces_is_cut():
    scene = heading("word " * 40, "x" * 400, width=300)
    words = [mark for mark in scene.marks if isinstance(mark, Words)]
    assert all(width_of(mark.text, mark.size, bold=mark.bold) <= 300 for mark in words)
    assert words[-1].text.endswith("…")


def distance(one: str, other: str) -> float:
    """Euclid's, of two colours in sRGB: coarse, enough to catch two that are nearly the same."""
    return sum((int(one[i : i + 2], 16) - int(other[i : i + 2], 16)) ** 2 for i in (1, 3, 5)) ** 0.5


@pytest.mark.parametrize("theme", [LIGHT, DARK])
def test_roles_have_colours_that_differ_and_stand_out_of_the_paper(theme):
    inks = [*(str(role) for role in Role), "gpu"]
    assert min(distance(theme[a], theme[b]) for a, b in combinations(inks, 2)) > 60
    assert min(contrast(theme[ink], theme["paper"]) for ink in inks) > 1.9
    assert min(contrast(theme[ink], theme["paper"]) for ink in ("ink", "soft", "card", "bad", "good")) > 4.5


def contrast(one: str, other: str) -> float:
    """WCAG 2.2's contrast ratio (w3.org/TR/WCAG22, relative luminance)."""

    def light(color: str) -> float:
        parts = [int(color[i : i + 2], 16) / 255 for i in (1, 3, 5)]
        red, green, blue = (p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts)
        return 0.2126 * red + 0.7152 * green + 0.0722 * blue

    high, low = sorted((light(one), light(other)), reverse=True)
    return (high + 0.05) / (low + 0.05)


def test_an_svg_file_is_xml_with_every_text_escaped():
    scene = Scene(100, 50, (Words(0, 10, '<a> & "b"'), Box(0, 0, 1, 1, "policy", "<title>")), '"<label>"')
    for text in (file_svg(scene), page_svg(scene)):
        root = ET.fromstring(text)
        assert [each.text for each in root.iter(f"{SVG}text")] == ['<a> & "b"']
        assert root.get("aria-label") == '"<label>"'


def test_control_characters_leave_the_svg_readable():
    (text,) = ET.fromstring(file_svg(Scene(9, 9, (Words(0, 9, "a\x1b\x00b"),)))).iter(f"{SVG}text")
    assert text.text == "a  b"


def test_an_svg_file_carries_both_themes_and_colours_for_viewers_without_styles(grpo):
    text = file_svg(plan_scene(grpo))
    assert "prefers-color-scheme:dark" in text
    assert f'fill="{LIGHT["policy"]}"' in text
    assert DARK["paper"] in text
    assert "http" not in text.replace("http://www.w3.org/2000/svg", "")


def test_a_legend_folds_where_the_sheet_ends():
    assert legend([*Role, None], width=300).height > legend([*Role, None], width=900).height


def test_a_comparison_where_nothing_fits_still_draws():
    none = compare({"policy": {"model": "70b"}, "hardware": {"gpu": "t4", "gpus": 1}}, gpus=1, variants=VARIANTS[-2:])
    file_svg(comparison_scene(none))


def test_png_needs_matplotlib_and_svg_does_not(grpo, monkeypatch, tmp_path):
    for name in [name for name in sys.modules if name.split(".")[0] == "matplotlib"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    save(plan_scene(grpo), tmp_path / "a.svg")
    with pytest.raises(InputError, match=r"pip install 'headcount\[charts\]'"):
        save(plan_scene(grpo), tmp_path / "a.png")
    assert [path.name for path in tmp_path.iterdir()] == ["a.svg"]


@pytest.mark.parametrize("theme", [LIGHT, DARK])
def test_a_png_has_the_sheet_s_size_twice_and_its_paper(grpo, theme):
    pytest.importorskip("matplotlib")
    from io import BytesIO

    from PIL import Image

    scene = plan_scene(grpo)
    image = Image.open(BytesIO(png(scene, theme=theme))).convert("RGB")
    assert image.size == pytest.approx((2 * scene.width, 2 * scene.height), abs=2)
    assert "#{:02x}{:02x}{:02x}".format(*image.getpixel((2, 2))) == theme["paper"]
    assert any(color == tuple(bytes.fromhex(theme["policy"][1:])) for _, color in image.getcolors(1 << 24))


@pytest.mark.parametrize("name", ["a.gif", "a", ".svg"])
def test_another_suffix_is_refused_with_a_name_to_use(grpo, tmp_path, name):
    with pytest.raises(InputError, match=r"\.svg or .*\.png"):
        save(plan_scene(grpo), tmp_path / name)


def test_a_failed_write_leaves_the_old_file_and_nothing_beside_it(grpo, tmp_path, monkeypatch):
    target = tmp_path / "a.svg"
    target.write_text("old")

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("headcount.plan.write.os.replace", full)
    with pytest.raises(InputError, match="No space left"):
        save(plan_scene(grpo), target)
    assert [path.name for path in tmp_path.iterdir()] == ["a.svg"]
    assert target.read_text() == "old"


def test_a_link_stays_a_link(grpo, tmp_path):
    real, link = tmp_path / "real.svg", tmp_path / "link.svg"
    real.write_text("old")
    link.symlink_to(real)
    save(plan_scene(grpo), link)
    assert link.is_symlink()
    assert real.read_text().startswith("<svg")


def test_missing_folders_and_folders_are_said(grpo, tmp_path):
    (tmp_path / "d.svg").mkdir()
    with pytest.raises(InputError, match="is a folder"):
        save(plan_scene(grpo), tmp_path / "d.svg")
    with pytest.raises(InputError, match="mkdir -p"):
        save(plan_scene(grpo), tmp_path / "no" / "a.svg")
