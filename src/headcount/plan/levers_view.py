"""How does a person see the levers of a job, and its scaling, in a terminal?"""

from __future__ import annotations

import json
from collections.abc import Sequence

from rich import box
from rich.console import RenderableType
from rich.table import Table

from headcount.plan.levers import Pulled
from headcount.plan.report import band_text
from headcount.plan.scale import Point
from headcount.units import bytes_text, duration_text, money_text

__all__ = ["levers_view", "scale_view"]


def levers_view(results: Sequence[Pulled], *, unit: str = "GiB") -> RenderableType:
    """Every lever that moves the job, the most bytes first."""
    table = Table(title="Levers, each tried alone", box=box.SIMPLE_HEAD, title_justify="left")
    for name in ("change", "peak a GPU", "a step", "then", "quality"):
        table.add_column(name, justify="right" if name in ("peak a GPU", "a step") else "left", overflow="fold")
    for each in results:
        host = f" (+{bytes_text(each.host_bytes, unit=unit)} host)" if each.host_bytes > 0 else ""
        table.add_row(
            f"{each.lever.name}\n{each.lever.key} = {_toml_value(each.lever.value)}",
            _signed(-each.saved_bytes, bytes_text(abs(each.saved_bytes), unit=unit)) + host,
            "–" if each.saved_step_s is None else _signed(-each.saved_step_s, duration_text(abs(each.saved_step_s))),
            str(each.verdict),
            each.lever.quality,
        )
    return table


def _signed(value: float, text: str) -> str:
    return f"{'+' if value > 0 else '−' if value < 0 else '±'}{text}"


def _toml_value(value: object) -> str:
    return "rows of a step" if value is None else json.dumps(value)


def _largest_share(point: Point) -> str:
    """What most of the step is lost to, from a tenth on."""
    name, share = max(point.shares, key=lambda each: each[1], default=("", 0.0))
    return f"{name} {share:.0%}" if share >= 0.1 else "work"


def scale_view(points: Sequence[Point]) -> RenderableType:
    """Hours and money by number of GPUs, a bar for the speed-up, and what binds."""
    table = Table(title="By number of GPUs (one and the same workload)", box=box.SIMPLE_HEAD, title_justify="left")
    for name in ("GPUs", "verdict", "a step", "hours", "dollars", "speed-up", "", "bound by"):
        left = name in ("verdict", "", "bound by")
        table.add_column(name, justify="left" if left else "right", no_wrap=name in ("", "bound by"))
    fastest = max((point.speedup or 0.0 for point in points), default=0.0)
    for point in points:
        run = point.plan.run if point.plan else None
        if point.plan is None or run is None:
            table.add_row(str(point.gpus), point.why_not or "time unknown for this card", *[""] * 6)
            continue
        speedup = point.speedup or 0.0
        table.add_row(
            f"{point.gpus:,}",
            str(point.plan.verdict),
            duration_text(run.step_seconds.p50),
            band_text(run.hours, "{:,.1f}"),
            money_text(run.dollars.p50) if run.dollars else "no price",
            f"{speedup:.1f} ×  {point.efficiency or 0:.0%}",
            "█" * max(1, round(10 * speedup / fastest)),
            _largest_share(point),
        )
    return table
