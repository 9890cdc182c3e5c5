"""What do a plan, a comparison and a trade-off look like: which scenes, in which order, in which file?"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from headcount.errors import InputError
from headcount.ledger.predicted import Plan
from headcount.plan.bytes_chart import legend, panel
from headcount.plan.compare import Comparison
from headcount.plan.optimum import Choice
from headcount.plan.scene import LIGHT, Scene, Theme, Words, file_svg, png, stacked, width_of
from headcount.plan.time_chart import bands, hours_chart, step_chart, tradeoff
from headcount.plan.write import write_whole
from headcount.vocabulary import Role

__all__ = [
    "byte_panels",
    "comparison_scene",
    "front_scene",
    "heading",
    "hours_of_each",
    "plan_panels",
    "plan_scene",
    "roles_of",
    "save",
    "time_charts",
]

Named = Sequence[tuple[str, Plan]]
_SHEET = 960.0  # pixels of a sheet: three panels beside each other


def heading(title: str, text: str = "", *, width: float = _SHEET) -> Scene:
    """A title and, smaller, what is to be seen; both folded where the sheet ends."""
    marks: list[Words] = []
    y = 0.0
    for line in _folded(title, width, 17, bold=True):
        y += 19
        marks.append(Words(0, y - 3, line, size=17, bold=True))
    for line in _folded(text, width, 11):
        y += 15
        marks.append(Words(0, y + 3, line, "soft"))
    return Scene(width, y + 7, tuple(marks))


def _folded(text: str, width: float, size: float, *, bold: bool = False) -> list[str]:
    """Lines that have room; a word that is longer than a line is cut."""
    lines: list[str] = []
    for word in text.split():
        if lines and width_of(f"{lines[-1]} {word}", size, bold=bold) <= width:
            lines[-1] += f" {word}"
        else:
            lines.append(_cut(word, width, size, bold=bold))
    return lines


def _cut(word: str, width: float, size: float, *, bold: bool) -> str:
    short = word
    while width_of(short, size, bold=bold) > width:
        short = short[:-1]
    return short if short == word else f"{short[:-1]}…"


def plan_scene(plan: Plan, *, unit: str = "GiB") -> Scene:
    """One job: bytes of every group of GPUs, the seconds of a step, hours and money."""
    panels = plan_panels(plan, width=_SHEET if len(plan.footprints) == 1 else (_SHEET - 24) / 2, unit=unit)
    title = f"{plan.name}: {plan.algorithm} of {plan.model}"
    scenes = [
        heading(title, f"{plan.verdict}: {plan.tightest.because}"),
        legend(roles_of([plan]), width=_SHEET),
        *_rows_of(panels, columns=1 if len(panels) == 1 else 2),
        *time_charts(plan, width=_SHEET),
    ]
    return stacked(scenes, label=title)


def plan_panels(plan: Plan, *, width: float, unit: str = "GiB") -> list[Scene]:
    """One panel for each group of GPUs, to one scale."""
    top = max(moment.bytes for footprint in plan.footprints for moment in footprint.moments)
    several = len(plan.footprints) > 1
    return [
        panel(footprint, title=footprint.group if several else "Bytes per GPU", top=top, width=width, unit=unit)
        for footprint in plan.footprints
    ]


def time_charts(plan: Plan, *, width: float) -> list[Scene]:
    """The parts of a step one after the other; every stage's hours and money."""
    if plan.run is None:
        text = "No speed is known for this card: no hours and no money (headcount facts gpus)."
        return [heading("Time: unknown", text, width=width)]
    return [step_chart(plan.run, width=width), bands(plan.stages, width=width)]


def comparison_scene(comparison: Comparison, *, unit: str = "GiB") -> Scene:
    """A panel of bytes for each variant on its fewest GPUs; hours of all on one common number of GPUs."""
    title = f"{comparison.model} on {comparison.gpu}"
    smallest = [each.smallest for each in comparison.compared if each.smallest is not None]
    scenes = [
        heading(title, comparison.workload),
        legend(roles_of(smallest), width=_SHEET),
        *_rows_of(byte_panels(comparison, width=(_SHEET - 48) / 3, unit=unit), columns=3),
        hours_of_each(comparison, width=_SHEET),
    ]
    return stacked(scenes, label=title)


def byte_panels(comparison: Comparison, *, width: float, unit: str = "GiB") -> list[Scene]:
    """One panel a variant that fits, to one scale."""
    fitting = [(each.variant.name, each.smallest) for each in comparison.compared if each.smallest is not None]
    top = max((plan.deciding.bytes for _, plan in fitting), default=0)
    return [panel(plan.tightest, title=name, top=top, width=width, unit=unit) for name, plan in fitting]


def hours_of_each(comparison: Comparison, *, width: float) -> Scene:
    """Hours of all on the common count, where every variant has a plan there."""
    common = [(each.variant.name, each.common) for each in comparison.compared if each.common is not None]
    included = ", start-up and checkpoints included" if width > 500 else ""
    title = f"Hours of each run, all on {comparison.common_gpus:,} GPUs{included}"
    return hours_chart(common, title=title, width=width)


def front_scene(front: Sequence[Choice], *, title: str) -> Scene:
    """GPUs against hours, money beside each point: the choices that no other beats."""
    cards = ", ".join(dict.fromkeys(choice.gpu for choice in front))
    return stacked([heading(title, cards, width=700), tradeoff(front, width=700)], label=title)


def roles_of(plans: Sequence[Plan]) -> list[Role | None]:
    """Whose bytes or seconds are to be seen, in the order of the legend."""
    rows = [
        row for plan in plans for footprint in plan.footprints for moment in footprint.moments for row in moment.rows
    ]
    seen = {row.role for row in rows if row.bytes}
    return [role for role in (*Role, None) if role in seen]


def _rows_of(panels: Sequence[Scene], *, columns: int) -> list[Scene]:
    """Panels of one size side by side, `columns` in a row."""
    rows: list[Scene] = []
    for start in range(0, len(panels), columns):
        beside = panels[start : start + columns]
        marks = [mark for place, each in enumerate(beside) for mark in each.at(place * (each.width + 24), 0)]
        rows.append(Scene(_SHEET, max(each.height for each in beside), tuple(marks)))
    return rows


def save(scene: Scene, path: Path, *, theme: Theme = LIGHT) -> None:
    """Write a .svg or a .png, whole or not at all.

    Raises:
        InputError: another suffix, a path that cannot be written, PNG without matplotlib.
    """
    kind = path.suffix.lower()
    if kind not in (".svg", ".png"):
        what = f"{path.suffix or 'a name without suffix'} is no picture that is drawn here"
        raise InputError.one(f"--chart {path}", what, f"{path.stem or 'out'}.svg or {path.stem or 'out'}.png")
    write_whole(path, png(scene, theme=theme) if kind == ".png" else file_svg(scene).encode("utf-8"))
