"""How do the bytes of a group of GPUs look: one bar a phase, cut by role, against what the card holds?"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from headcount.ledger.predicted import Footprint, Moment
from headcount.plan.scene import Box, Mark, Scene, Stroke, Words, role_ink, width_of
from headcount.units import GB, GIB, bytes_text
from headcount.vocabulary import Phase, Role, Verdict

__all__ = ["VERDICT_MARKS", "legend", "panel", "ticks"]

VERDICT_MARKS = {Verdict.FITS: ("✓", "good"), Verdict.UNCERTAIN: ("?", "card"), Verdict.DOES_NOT_FIT: ("✗", "bad")}
_LEFT, _HEAD, _FOOT = 34.0, 46.0, 20.0
_LABEL = 9.5


def panel(footprint: Footprint, *, title: str, top: float, width: float, unit: str = "GiB") -> Scene:
    """One bar a phase at its worst moment. `top`: the most bytes of all panels that share the scale."""
    size = GB if unit == "GB" else GIB
    capacity = footprint.capacity_bytes[0]
    plot = 170.0 if width < 500 else 230.0
    scale = plot / (1.08 * max(top, capacity))  # pixels a byte; the rest is room for a figure above the highest bar
    floor = _HEAD + plot
    line = floor - capacity * scale
    peaks = [peak for phase in Phase if (peak := footprint.peak_of(phase)) is not None]
    pitch = (width - _LEFT) / len(peaks)
    middles = [_LEFT + (place + 0.5) * pitch for place in range(len(peaks))]
    marks: list[Mark] = [*_title(footprint, title, unit)]
    for value in ticks(max(top, capacity) / size):
        y = floor - value * size * scale
        marks.append(Stroke(_LEFT, y, width - _LEFT, 0, "line"))
        if abs(y - line) > 10:
            marks.append(Words(_LEFT - 5, y + 3.5, f"{value:g}", "soft", _LABEL, "end"))
    for x, peak in zip(middles, peaks, strict=True):
        marks += _bar(peak, x=x, floor=floor, pitch=pitch, scale=scale)
        marks.append(Words(x, floor + 13, str(peak.phase), "ink", _LABEL, "middle"))
    marks += [
        Stroke(_LEFT, line, width - _LEFT, 0, "paper", 3.0),
        Stroke(_LEFT, line, width - _LEFT, 0, "card", 1.4, dashed=True),
        Words(_LEFT - 3, line + 3.5, f"{capacity / size:.1f}", "card", _LABEL, "end", bold=True),
    ]
    worst = max(peaks, key=lambda peak: peak.bytes)
    for x, peak in zip(middles, peaks, strict=True):
        ink, y = "bad" if peak.bytes > capacity else "ink", _figure_y(floor - peak.bytes * scale, line)
        marks.append(Words(x, y, f"{peak.bytes / size:.1f}", ink, _LABEL, "middle", bold=peak is worst))
    return Scene(width, floor + _FOOT, tuple(marks), _told(footprint, title))


def _title(footprint: Footprint, title: str, unit: str) -> Iterator[Mark]:
    sign, ink = VERDICT_MARKS[footprint.verdict]
    card = footprint.gpu.partition(" (")[0]
    yield Words(0, 12, title, size=12.5, bold=True)
    said = f"{sign} {footprint.verdict}"
    yield Words(0, 28, said, ink, bold=True)
    yield Words(width_of(said, 11, bold=True) + 8, 28, f"{footprint.gpus:,} × {card}", "soft")
    yield Words(_LEFT - 5, 41, "GB" if unit == "GB" else "GiB", "soft", _LABEL, "end")


def _bar(peak: Moment, *, x: float, floor: float, pitch: float, scale: float) -> Iterator[Mark]:
    """The roles' bytes one on the other, in the order of the legend; names inside where they have room."""
    thick = min(0.74 * pitch, 78.0)
    y = floor
    for role in (*Role, None):
        held = sum(row.bytes for row in peak.rows if row.role is role)
        tall = held * scale
        if not held:
            continue
        y -= tall
        hover = f"{peak.label}: {role or 'GPU itself'} {bytes_text(held)} of {bytes_text(peak.bytes)}"
        yield Box(x - thick / 2, y, thick, max(0.5, tall - min(1.0, tall / 4)), role_ink(role), hover)
        if role is not None and tall > 13 and width_of(role, 9) < thick:
            yield Words(x, y + tall / 2 + 3, str(role), _on(role), 9, "middle")


def _on(role: Role) -> str:
    return "on-dark" if role is Role.POLICY else "on-light"


def _figure_y(top: float, line: float) -> float:
    """Just above the bar, or above the capacity line where the figure would meet it."""
    return line - 4 if line - 2 < top < line + 14 else top - 4


def _told(footprint: Footprint, title: str) -> str:
    return f"{title}: {footprint.verdict}; peak at {footprint.deciding.label}; {footprint.because}"


def ticks(top: float, most: int = 5) -> list[float]:
    """Round values from zero up to `top`: steps of 1, 2, 5 times a power of ten, at most `most` of them."""
    if top <= 0:
        return [0.0]
    step = 1e-9
    while True:
        for factor in (1, 2, 5):
            if top / (step * factor) <= most:
                return [place * step * factor for place in range(int(top / (step * factor) + 1e-9) + 1)]
        step *= 10


def legend(roles: Sequence[Role | None], *, width: float) -> Scene:
    """One swatch a role, for bytes and seconds alike, and the dashed line."""
    marks: list[Mark] = []
    x, y = 0.0, 10.0
    entries = [(role_ink(role), str(role) if role else "the GPU itself, fixed costs") for role in roles]
    for ink, name in [*entries, ("card", "what the card holds")]:
        swatch = 29 if ink == "card" else 17
        wide = swatch + width_of(name, 11) + 14
        if x and x + wide > width:
            x, y = 0.0, y + 18
        dashes = Stroke(x, y - 4, 24, 0, "card", 1.6, dashed=True)
        marks += [dashes if ink == "card" else Box(x, y - 9, 11, 11, ink), Words(x + swatch, y, name)]
        x += wide
    return Scene(width, y + 6, tuple(marks), "legend")
