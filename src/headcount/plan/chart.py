"""What does a plan look like: bytes by role in each phase against the card, seconds by phase, GPUs against hours?

matplotlib draws it (the extra `charts`); nothing here is imported before a chart is asked for.
"""

from __future__ import annotations

import io
import os
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headcount.errors import InputError
from headcount.ledger.predicted import Footprint, Plan, Seconds
from headcount.plan.compare import Comparison
from headcount.plan.optimum import Choice
from headcount.units import GIB
from headcount.vocabulary import Phase, Role

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["DARK", "LIGHT", "Named", "Theme", "figure_of", "front_figure", "plans_of", "save", "svg", "write_whole"]

Named = Sequence[tuple[str, Plan]]

# Okabe and Ito's palette (jfly.uni-koeln.de/color): told apart with every kind of colour blindness. One colour a role.
_ROLES: Mapping[Role | None, str] = {
    Role.POLICY: "#0072B2",
    Role.CRITIC: "#E69F00",
    Role.REFERENCE: "#009E73",
    Role.REWARD: "#CC79A7",
    Role.GENERATOR: "#56B4E9",
    None: "#8C8C8C",
}
_PARTS: Mapping[str, str] = {
    "generate": "#56B4E9",
    "score": "#009E73",
    "update": "#0072B2",
    "sync": "#CC79A7",
    "wake": "#D55E00",
    "fixed": "#8C8C8C",
    "cache": "#E69F00",
}
_CARD = "#D55E00"
_SHORT = {Phase.GENERATE: "gen", Phase.SCORE: "score", Phase.UPDATE: "update"}


@dataclass(frozen=True, slots=True)
class Theme:
    """Colours of paper and ink."""

    name: str
    paper: str
    ink: str
    line: str


LIGHT = Theme("light", "#ffffff", "#1b1f24", "#c9ced6")
DARK = Theme("dark", "#14181d", "#e6e9ee", "#4a525d")


def plans_of(comparison: Comparison) -> list[tuple[str, Plan]]:
    """The variants at their fewest GPUs, where some fit."""
    return [(each.variant.name, each.smallest) for each in comparison.compared if each.smallest is not None]


def _pyplot() -> Any:
    """matplotlib without a display; without matplotlib, what to install."""
    try:
        import matplotlib  # noqa: PLC0415 - loads only when a chart is asked for
    except ImportError:
        what = "charts are drawn by matplotlib, which is not installed"
        raise InputError.one("--chart", what, "pip install 'headcount[charts]'") from None
    matplotlib.use("Agg")
    matplotlib.rcParams |= {"svg.fonttype": "none", "svg.hashsalt": "headcount", "font.size": 9}
    from matplotlib import pyplot  # noqa: PLC0415

    return pyplot


def figure_of(plans: Named, *, title: str, theme: Theme = LIGHT) -> Figure:
    """One panel of bytes a plan, and under them everybody's seconds of a step."""
    pyplot = _pyplot()
    columns = min(3, len(plans))
    rows = -(-len(plans) // columns)
    height = 2.5 * rows + 0.42 * len(plans) + 1.6
    figure = pyplot.figure(figsize=(max(7.0, 3.7 * columns), height), facecolor=theme.paper, layout="constrained")
    upper, lower = figure.subfigures(2, 1, height_ratios=[2.5 * rows + 0.6, 0.42 * len(plans) + 1.0], hspace=0.03)
    upper.set_facecolor(theme.paper)
    lower.set_facecolor(theme.paper)
    upper.suptitle(title, color=theme.ink, fontsize=12, fontweight="bold", x=0.01, ha="left")
    axes = upper.subplots(rows, columns, squeeze=False, sharey=True)
    for place, axis in enumerate(axes.flat):
        if place >= len(plans):
            axis.set_axis_off()
            continue
        name, plan = plans[place]
        _memory(axis, name, plan, theme)
        if place % columns == 0:
            axis.set_ylabel("GiB a GPU", color=theme.ink)
    _legend(upper, plans, theme)
    _time(lower.subplots(1, 1), plans, theme)
    return figure


def _dress(axis: Axes, theme: Theme) -> None:
    axis.set_facecolor(theme.paper)
    axis.tick_params(colors=theme.ink, length=0)
    for side, spine in axis.spines.items():
        spine.set_visible(side == "bottom")
        spine.set_color(theme.line)


def _memory(axis: Axes, name: str, plan: Plan, theme: Theme) -> None:
    """Stacked bytes by role at the worst instant of each phase, the card's capacity as a line."""
    _dress(axis, theme)
    held = plan.tightest
    phases = [phase for phase in Phase if held.peak_of(phase) is not None]
    capacity = held.capacity_bytes[0] / GIB
    for place, phase in enumerate(phases):
        bottom = 0.0
        for role, size in _by_role(held, phase):
            axis.bar(place, size / GIB, bottom=bottom, color=_ROLES[role], width=0.72, edgecolor=theme.paper, lw=0.6)
            bottom += size / GIB
        full = 0.9 * capacity < bottom < 1.1 * capacity  # above the bar the figure would meet the capacity line
        ink, side = ("#ffffff", "top") if full else (theme.ink, "bottom")
        axis.text(place, bottom, f"{bottom:.0f}", ha="center", va=side, color=ink, fontsize=7)
    axis.axhline(capacity, color=_CARD, lw=1.1, ls=(0, (4, 2)))
    axis.text(-0.45, capacity, f"the card: {capacity:.1f}", color=_CARD, fontsize=7, ha="left", va="bottom")
    axis.set_xticks(range(len(phases)), [_SHORT.get(phase, str(phase)) for phase in phases], fontsize=7, rotation=30)
    axis.set_title(f"{name}: {plan.gpus} × {_card(plan)}, {plan.verdict}", color=theme.ink, fontsize=9, loc="left")
    axis.grid(axis="y", color=theme.line, lw=0.4)
    axis.set_axisbelow(True)


def _card(plan: Plan) -> str:
    return plan.gpu.partition(" (")[0]


def _by_role(held: Footprint, phase: Phase) -> list[tuple[Role | None, float]]:
    moment = held.peak_of(phase)
    assert moment is not None
    sizes: dict[Role | None, float] = dict.fromkeys(_ROLES, 0.0)
    for row in moment.rows:
        sizes[row.role] += row.bytes
    return [(role, size) for role, size in sizes.items() if size]


def _legend(figure: Any, plans: Named, theme: Theme) -> None:
    from matplotlib.patches import Patch  # noqa: PLC0415

    present = {
        role for _, plan in plans for phase in Phase if plan.tightest.peak_of(phase)
        for role, _ in _by_role(plan.tightest, phase)
    }  # fmt: skip
    names = {role: str(role or "context, NCCL") for role in _ROLES if role in present}
    patches = [Patch(color=_ROLES[role], label=name) for role, name in names.items()]
    figure.legend(
        handles=patches, loc="outside lower center", ncols=len(patches), frameon=False, labelcolor=theme.ink, fontsize=8
    )


def _time(axis: Axes, plans: Named, theme: Theme) -> None:
    """Seconds of a step by phase, p10 to p90 as whiskers."""
    _dress(axis, theme)
    seen: dict[str, str] = {}
    for place, (_, plan) in enumerate(plans):
        if plan.run is None:
            axis.text(0, place, " time unknown for this card", va="center", color=theme.ink, fontsize=8)
            continue
        left = 0.0
        for part in plan.run.step:
            color = _color(part, seen)
            width = part.band.p50
            axis.barh(place, max(0.0, width), left=left, color=color, height=0.66, edgecolor=theme.paper, lw=0.6)
            left += max(0.0, width)
        band = plan.run.step_seconds
        axis.plot([band.p10, band.p90], [place, place], color=theme.ink, lw=1.0, solid_capstyle="butt")
        axis.plot([band.p50], [place], "|", color=theme.ink, ms=9)
        axis.text(band.p90, place, f"  {plan.run.hours.p50:,.1f} h", va="center", color=theme.ink, fontsize=8)
    axis.set_yticks(range(len(plans)), [name for name, _ in plans])
    axis.invert_yaxis()
    axis.set_xlabel("seconds of a step, p10 to p90; hours of the run", color=theme.ink)
    axis.margins(x=0.12)
    axis.grid(axis="x", color=theme.line, lw=0.4)
    axis.set_axisbelow(True)
    from matplotlib.patches import Patch  # noqa: PLC0415

    handles = [Patch(color=color, label=name) for name, color in seen.items()]
    axis.legend(
        handles=handles, loc="lower left", bbox_to_anchor=(0, 1.0), ncols=len(handles), frameon=False,
        labelcolor=theme.ink, fontsize=8, borderaxespad=0.2,
    )  # fmt: skip


def _color(part: Seconds, seen: dict[str, str]) -> str:
    kind = str(part.name).split(maxsplit=1)[0]
    color = _PARTS.get(kind, "#8C8C8C")
    if part.band.p50 > 0:
        seen.setdefault(kind, color)
    return color


def front_figure(front: Sequence[Choice], *, title: str, theme: Theme = LIGHT) -> Figure:
    """GPUs against hours, money beside each point: the choices that no other beats."""
    pyplot = _pyplot()
    figure, axis = pyplot.subplots(figsize=(7.0, 4.2), facecolor=theme.paper, layout="constrained")
    _dress(axis, theme)
    ordered = sorted(front, key=lambda choice: (choice.gpus, choice.hours.p50))
    axis.plot([c.gpus for c in ordered], [c.hours.p50 for c in ordered], "-", color=theme.line, lw=1)
    for choice in ordered:
        hours = choice.hours
        axis.plot([choice.gpus, choice.gpus], [hours.p10, hours.p90], color=theme.ink, lw=1)
        axis.plot([choice.gpus], [hours.p50], "o", color="#0072B2", ms=6)
        money = f"${choice.dollars.p50:,.0f}" if choice.dollars else "no price"
        axis.annotate(
            f"{money}, {hours.p50:,.1f} h", (choice.gpus, hours.p50), xytext=(7, 4), textcoords="offset points",
            color=theme.ink, fontsize=8,
        )  # fmt: skip
    axis.set_xscale("log", base=2)
    axis.set_xticks(sorted({c.gpus for c in ordered}), [str(gpus) for gpus in sorted({c.gpus for c in ordered})])
    axis.minorticks_off()
    axis.set_ylim(bottom=0)
    axis.margins(x=0.15)
    axis.set_xlabel("GPUs", color=theme.ink)
    axis.set_ylabel("hours of the run, p10 to p90", color=theme.ink)
    axis.set_title(title, color=theme.ink, loc="left", fontsize=11, fontweight="bold")
    axis.grid(color=theme.line, lw=0.4)
    return figure


def svg(figure: Figure) -> str:
    """The figure as an SVG element, without the XML head."""
    buffer = io.StringIO()
    figure.savefig(buffer, format="svg", facecolor=figure.get_facecolor(), metadata={"Date": None})
    _pyplot().close(figure)
    text = buffer.getvalue()
    return text[text.index("<svg") :]


def save(figure: Figure, path: Path) -> None:
    """Write .svg or .png beside the target, then move it there: a killed run leaves the old file whole.

    Raises:
        InputError: another suffix, no such folder, not writable.
    """
    kind = path.suffix.lower().removeprefix(".")
    if kind not in ("svg", "png"):
        what = f"{path.suffix or 'no suffix'} is no picture that is drawn here"
        raise InputError.one(str(path), what, "out.svg or out.png")
    buffer = io.BytesIO()
    figure.savefig(buffer, format=kind, dpi=160, facecolor=figure.get_facecolor())
    _pyplot().close(figure)
    write_whole(path, buffer.getvalue())


def write_whole(path: Path, content: bytes) -> None:
    """All of a file or nothing.

    Raises:
        InputError: no such folder, a folder itself, not writable, disk full.
    """
    try:
        with tempfile.NamedTemporaryFile(dir=path.parent, prefix=f".{path.name}.", delete=False) as part:
            part.write(content)
        os.chmod(part.name, 0o644)
        os.replace(part.name, path)
    except OSError as error:
        raise InputError.one(str(path), f"cannot be written: {error.strerror or error}") from None
