"""How do hours and money look: the parts of a step, stages with their bands, runs side by side, trade-offs?

Every whisker is the 80 % band, p10 to p90. A part has the colour of the network that works in it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import log2

from headcount.ledger.predicted import Band, Plan, Seconds, Stage
from headcount.plan.bytes_chart import VERDICT_MARKS, ticks
from headcount.plan.optimum import Choice
from headcount.plan.scene import Box, Dot, Mark, Scene, Stroke, Words, role_ink, width_of
from headcount.plan.totals import dollars_of, hours_of
from headcount.units import duration_text, money_text
from headcount.vocabulary import Phase, Role

__all__ = ["bands", "hours_chart", "step_chart", "tradeoff"]

_SMALL = 9.5
_CLOCK = ((3600.0, "h"), (60.0, "min"), (1.0, "s"))


@dataclass(frozen=True, slots=True)
class _Part:
    """A piece of a run: the phase that it belongs to, whose colour it has."""

    phase: str
    name: str
    ink: str
    seconds: float


def _ink(name: str) -> str:
    """`update critic` is the critic's; the engine generates; a cache pass is the reference's; the rest is nobody's."""
    phase, _, role = name.partition(" ")
    if role in list(Role):
        return role
    return {str(Phase.GENERATE): "generator", str(Phase.CACHE): "reference"}.get(phase, role_ink(None))


def _whisker(low: float, high: float, y: float, *, tall: float = 4.0) -> Iterator[Mark]:
    """p10 to p90, with a rim of paper that keeps it apart from a bar under it."""
    for ink, thick, more in (("paper", 3.4, 1.0), ("ink", 1.2, 0.0)):
        yield Stroke(low - more, y, high - low + 2 * more, 0, ink, thick)
        yield Stroke(low, y - tall - more, 0, 2 * (tall + more), ink, thick)
        yield Stroke(high, y - tall - more, 0, 2 * (tall + more), ink, thick)


def _axis(top: float, *, x: float, wide: float, y: float, tall: float, money: bool = False) -> Iterator[Mark]:
    """Vertical lines at round seconds, minutes, hours or dollars; the first figure starts where the axis does."""
    size, unit = (1.0, "") if money else _clock(top)
    for value in ticks(top / size, 5 if wide > 300 else 3):
        at = x + value * size / top * wide
        yield Stroke(at, y, 0, tall, "line")
        text = f"${value:,g}" if money else f"{value:g} {unit}"
        yield Words(at, y + tall + 12, text, "soft", _SMALL, "start" if value == 0 else "middle")


def _clock(seconds: float) -> tuple[float, str]:
    """The unit in which a time is read."""
    return next((size, unit) for size, unit in _CLOCK if abs(seconds) >= 1.5 * size or size == 1.0)


def _time_text(band_s: Band, *, like_s: float | None = None) -> str:
    """`20.1 s (15.2–31.0)`: one unit for the three, that of `like_s` where several are compared."""
    size, unit = _clock(like_s or band_s.p50)
    low, middle, high = (_figure(value / size) for value in (band_s.p10, band_s.p50, band_s.p90))
    if low == high:
        return f"{middle} {unit}"
    between = f"{high} to {low}" if band_s.p50 < 0 else f"{low}–{high}"  # what is given back: from the most on
    return f"{middle} {unit} ({between})"


def _figure(value: float) -> str:
    """About three digits."""
    size = abs(value)
    text = f"{value:,.0f}" if size >= 100 else f"{value:.1f}" if size >= 10 else f"{value:.2f}"
    return (f"{value:.2g}" if 0 < size < 0.1 else text).replace("-", "−")


def _money_text(band: Band) -> str:
    low, middle, high = (money_text(value) for value in (band.p10, band.p50, band.p90))
    return middle if low == high else f"{middle} ({low}–{high})"


# --- runs side by side -----------------------------------------------------------------------------------------------


def hours_chart(plans: Sequence[tuple[str, Plan]], *, title: str, width: float) -> Scene:
    """One bar a plan, all its stages: cut by phase and by the network at work, p10 to p90 over it."""
    whole = {name: _together_s(plan.stages) for name, plan in plans if plan.run}
    top = max((seconds.p90 for seconds in whole.values()), default=3600.0)
    head, row, wide = 34.0, 50.0, width - 24
    marks: list[Mark] = [Words(0, 12, title, size=12.5, bold=True)]
    marks += _axis(top, x=0, wide=wide, y=head - 8, tall=row * len(plans) + 2)
    for place, (name, plan) in enumerate(plans):
        y = head + place * row
        marks += _named(name, plan, y, width, top)
        if name in whole:
            marks += _run_bar(_parts(plan.stages), y=y + 13, scale=wide / top)
            marks += _whisker(whole[name].p10 / top * wide, whole[name].p90 / top * wide, y + 20)
        else:
            marks.append(Words(0, y + 26, "time unknown for this card", "soft"))
    label = "; ".join(f"{name} {_time_text(seconds, like_s=top)}" for name, seconds in whole.items())
    return Scene(width, head + row * len(plans) + 16, tuple(marks), f"{title}: {label}")


def _named(name: str, plan: Plan, y: float, width: float, top_s: float) -> Iterator[Mark]:
    """Above the bar: whose it is, and at the right end hours and money with their bands."""
    sign, ink = VERDICT_MARKS[plan.verdict]
    yield Words(0, y + 8, name)
    if plan.verdict.exit_code:
        yield Words(width_of(name, 11) + 8, y + 8, f"{sign} {plan.verdict}", ink, _SMALL)
    if plan.run is None:
        return
    said = _time_text(_together_s(plan.stages), like_s=top_s)
    money = dollars_of(plan.stages)
    if money is not None:
        said += f" · {_money_text(money) if width > 500 else money_text(money.p50)}"
    yield Words(width, y + 8, said, "ink", _size(width), "end")


def _run_bar(parts: Sequence[_Part], *, y: float, scale: float) -> Iterator[Mark]:
    """The parts in a row; under them a bracket and the name of each phase that has room for it."""
    x, start = 0.0, 0.0
    for place, part in enumerate(parts):
        wide = part.seconds * scale
        hover = f"{part.name}: {duration_text(abs(part.seconds))}"
        if wide < 0:  # what runs beside the rest ends earlier: hollow
            yield Box(x + wide, y + 1.5, -wide, 11, "paper", hover)
        else:
            yield Box(x, y, max(0.3, wide - min(0.8, wide / 4)), 14, part.ink, hover)
        x += wide
        last = place + 1 == len(parts) or parts[place + 1].phase != part.phase
        if last and x - start > width_of(part.phase, 9) + 4:
            yield Stroke(start + 1, y + 17, x - start - 3, 0, "soft", 0.8)
            yield Words((start + x) / 2, y + 27, part.phase, "soft", 9, "middle")
        start = x if last else start


def _parts(stages: Sequence[Stage]) -> list[_Part]:
    """A plan's seconds in the order in which they pass; what stands around the run is one part at the end."""
    parts: list[_Part] = []
    around = sum(stage.hours.p50 * 3600 for stage in stages if stage.around)
    for stage in stages:
        for each in () if stage.around else stage.step:
            name = str(each.name)
            parts.append(_Part(name.partition(" ")[0], name, _ink(name), each.band.p50 * stage.steps))
    names = ", ".join(stage.name for stage in stages if stage.around)
    return [*parts, _Part("around", names, role_ink(None), around)] if around else parts


def _together_s(stages: Sequence[Stage]) -> Band:
    return hours_of(stages).scaled(3600)


# --- one plan --------------------------------------------------------------------------------------------------------


def step_chart(run: Stage, *, width: float) -> Scene:
    """The parts of a step one after the other, each with its own band at its end; the step below them."""
    left, right, head, row = (98.0, 128.0, 30.0, 21.0) if width < 500 else (130.0, 160.0, 30.0, 22.0)
    wide = width - left - right
    ends: list[tuple[Seconds, float]] = []
    done = 0.0
    for part in run.step:
        ends.append((part, done))
        done += part.band.p50
    top = max(run.step_seconds.p90, *(start + part.band.p90 for part, start in ends))
    scale = wide / top
    title = f"A step of {run.name}, {run.steps:,} of them"
    marks: list[Mark] = [Words(0, 12, title, size=12.5, bold=True)]
    marks += _axis(top, x=left, wide=wide, y=head - 6, tall=row * (len(ends) + 1) + 6)
    for place, (part, start) in enumerate(ends):
        marks += _step_row(part, start, y=head + place * row, left=left, width=width, scale=scale)
    y = head + len(ends) * row
    whole = run.step_seconds
    marks += [
        Words(0, y + 14, "a step", bold=True),
        *_whisker(left + whole.p10 * scale, left + whole.p90 * scale, y + 10),
        Dot(left + whole.p50 * scale, y + 10, 3.5, "ink"),
        Words(width, y + 14, _time_text(whole), "ink", _size(width), "end", bold=True),
    ]
    return Scene(width, y + row + 16, tuple(marks), f"{title}: {duration_text(whole.p50)}")


def _step_row(part: Seconds, start: float, *, y: float, left: float, width: float, scale: float) -> Iterator[Mark]:
    name, middle = str(part.name), part.band.p50
    yield Words(0, y + 14, name)
    x, wide = left + min(start, start + middle) * scale, abs(middle) * scale
    yield Box(x, y + 3, max(0.8, wide), 14, _ink(name), part.because)
    if middle < 0:  # what runs beside the rest takes time back: hollow
        yield Box(x + 1.5, y + 4.5, max(0.0, wide - 3), 11, "paper", part.because)
    if part.band.p10 != part.band.p90:
        yield from _whisker(left + (start + part.band.p10) * scale, left + (start + part.band.p90) * scale, y + 10)
    yield Words(width, y + 14, _time_text(part.band), "soft", _size(width), "end")


def bands(stages: Sequence[Stage], *, width: float) -> Scene:
    """Wall-clock and dollars of each stage and of all together, as points between whiskers."""
    clock = [(stage.name, stage.hours.scaled(3600)) for stage in stages if stage.gpus]
    money = [(stage.name, stage.dollars) for stage in stages if stage.dollars is not None]
    whole, dollars = _together_s(stages), dollars_of(stages)
    tracks = [_track("Wall-clock", [*clock, ("together", whole)], width)]
    label = _time_text(whole)
    if dollars is not None:
        tracks.append(_track("Dollars", [*money, ("together", dollars)], width, money=True))
        label += f", {_money_text(dollars)}"
    marks: list[Mark] = []
    y = 0.0
    for track in tracks:
        marks += track.at(0, y)
        y += track.height
    return Scene(width, y, tuple(marks), label)


def _track(title: str, lines: Sequence[tuple[str, Band]], width: float, *, money: bool = False) -> Scene:
    left, right, head, row = (98.0, 128.0, 30.0, 19.0) if width < 500 else (130.0, 160.0, 30.0, 20.0)
    top = max(band.p90 for _, band in lines) or 1.0
    wide = width - left - right
    marks: list[Mark] = [Words(0, 12, f"{title}, p10 to p90", size=12.5, bold=True)]
    marks += _axis(top, x=left, wide=wide, y=head - 6, tall=row * len(lines) + 4, money=money)
    for place, (name, band) in enumerate(lines):
        y, last = head + place * row, place + 1 == len(lines)
        low, middle, high = (left + value / top * wide for value in (band.p10, band.p50, band.p90))
        ink = "ink" if last else "soft"
        said = _money_text(band) if money else _time_text(band)
        marks += [Words(0, y + 12, _cut(name, left), bold=last), *_whisker(low, high, y + 8, tall=3.0)]
        marks += [Dot(middle, y + 8, 3.5, ink), Words(width, y + 12, said, ink, _size(width), "end", bold=last)]
    return Scene(width, head + row * len(lines) + 24, tuple(marks))


def _size(width: float) -> float:
    return 11.0 if width > 500 else _SMALL


def _cut(name: str, wide: float) -> str:
    """A stage's name where it has room, else its beginning."""
    most = int((wide - 6) / width_of("x", 11))
    return name if len(name) <= most else f"{name[: most - 1]}…"


# --- trade-offs ------------------------------------------------------------------------------------------------------


def tradeoff(front: Sequence[Choice], *, width: float) -> Scene:
    """GPUs on a doubling scale against hours, p10 to p90; hours and money beside each point."""
    ordered = sorted(front, key=lambda choice: (choice.gpus, choice.hours.p50))
    left, head, plot = 40.0, 26.0, 260.0
    top = 1.05 * max((choice.hours.p90 for choice in ordered), default=1.0)
    places = _log_places(sorted({choice.gpus for choice in ordered}))
    place = {gpus: left + 40 + (width - left - 200) * at for gpus, at in places.items()}
    marks: list[Mark] = [Words(0, 12, "hours of the run, p10 to p90", "soft", _SMALL)]
    for value in ticks(top):
        y = head + plot * (1 - value / top)
        marks += [
            Stroke(left, y, width - left, 0, "line"),
            Words(left - 6, y + 3.5, f"{value:g}", "soft", _SMALL, "end"),
        ]
    points = [(place[each.gpus], head + plot * (1 - each.hours.p50 / top)) for each in ordered]
    marks += [Stroke(x, y, x2 - x, y2 - y, "soft", 0.8) for (x, y), (x2, y2) in pairwise(points)]
    for choice, (x, y) in zip(ordered, points, strict=True):
        low, high = (head + plot * (1 - value / top) for value in (choice.hours.p10, choice.hours.p90))
        marks += [Stroke(x, high, 0, low - high, "ink", 1.2), Dot(x, y, 4.5, "policy")]
    marks += _point_names(ordered, points)
    marks += [Words(x, head + plot + 15, f"{gpus:,}", "ink", 11, "middle") for gpus, x in place.items()]
    marks.append(Words(width, head + plot + 15, "GPUs", "soft", _SMALL, "end"))
    return Scene(width, head + plot + 22, tuple(marks), "GPUs against hours and money")


def _point_names(choices: Sequence[Choice], points: Sequence[tuple[float, float]]) -> Iterator[Mark]:
    """Hours and money beside a point, the card where there are several; nothing where it would cover another."""
    several = len({choice.gpu for choice in choices}) > 1
    taken: list[tuple[float, float]] = []
    for choice, (x, y) in zip(choices, points, strict=True):
        if any(x == other and abs(y - above) < 13 for other, above in taken):
            continue
        taken.append((x, y))
        money = money_text(choice.dollars.p50) if choice.dollars else "no price"
        card = f" · {choice.gpu}" if several else ""
        yield Words(x + 9, y - 2, f"{choice.hours.p50:,.1f} h · {money}{card}")


def _log_places(counts: Sequence[int]) -> dict[int, float]:
    """0 for the fewest, 1 for the most, doublings evenly between."""
    span = log2(counts[-1] / counts[0]) if counts and counts[-1] > counts[0] else 1.0
    return {gpus: log2(gpus / counts[0]) / span for gpus in counts}
