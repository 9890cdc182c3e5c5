"""A plan or a comparison as one HTML page that needs nothing else: light and dark, on a phone, in print."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from html import escape
from importlib.resources import files
from typing import TYPE_CHECKING

from headcount.ledger.predicted import Assumption, Band, Footprint, Plan, Row, Stage
from headcount.plan.chart import DARK, LIGHT, Theme, figure_of, plans_of, svg
from headcount.plan.compare import Comparison
from headcount.units import bytes_text, count_text, duration_text, money_text
from headcount.vocabulary import Phase, Verdict

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["comparison_page", "plan_page"]

Cells = Sequence[str]


def plan_page(plan: Plan, *, unit: str = "GiB") -> str:
    """Verdict, picture, peaks, hours and money, settings and assumptions, the derivation of every row."""
    title = f"{plan.name}: {plan.algorithm} of {plan.model}"
    tone = "fits" if plan.verdict is Verdict.FITS else "no"
    parts = [
        f"<h1>{escape(title)}</h1>",
        f'<p class="{tone}"><strong>{plan.verdict}</strong> on {plan.gpus:,} × {escape(plan.gpu)}</p>',
        f"<p>{escape(plan.tightest.because)}</p>",
        _picture(lambda theme: figure_of([(str(plan.algorithm), plan)], title="", theme=theme), title),
        "<h2>Who is resident</h2>",
        _table(
            ("network", "tier", "model", "parameters", "state"),
            (
                (str(r.role), str(r.tier), r.model, count_text(r.parameters), bytes_text(r.state_bytes, unit=unit))
                for r in plan.headcount
            ),
            numbers=2,
        ),
        *(part for footprint in plan.footprints for part in _peaks(footprint, unit)),
        *_stages(plan.stages),
        *_assumptions(plan.assumptions),
        "<h2>Every row and its derivation</h2>",
        *(_row(row, unit) for row in plan.rows() if row.bytes),
        "<h2>Settings</h2>",
        _table(("key", "value", "who said so"), ((k, str(v), f"{o}: {t}") for k, v, o, t in plan.settings)),
    ]
    return _page(title, parts)


def comparison_page(comparison: Comparison, *, unit: str = "GiB") -> str:
    """The algorithms side by side in a picture and a table, and each pipeline."""
    title = f"{comparison.model} on {comparison.gpu}"
    named = plans_of(comparison)
    parts = [
        f"<h1>{escape(title)}</h1>",
        f'<p class="soft">{escape(comparison.workload)}</p>',
        _picture(lambda theme: figure_of(named, title="", theme=theme), title) if named else "<p>Nothing fits.</p>",
        "<h2>Each on the fewest GPUs that hold it</h2>",
        _table(
            ("variant", "networks", "GPUs", "peak a GPU", "hours", "dollars"),
            (_variant(each.variant.name, each.smallest, unit) for each in comparison.compared),
            numbers=4,
        ),
        "<h2>The pipelines</h2>",
        _table(
            ("variant", "stage", "GPUs", "hours", "dollars"),
            (
                (each.variant.name, stage.name, f"{stage.gpus:,}", _range(stage.hours), _money(stage))
                for each in comparison.compared
                for stage in each.pipeline
            ),
            numbers=3,
        ),
    ]
    return _page(title, parts)


def _variant(name: str, plan: Plan | None, unit: str) -> Cells:
    if plan is None:
        return (name, "none fits", "", "", "", "")
    networks = ", ".join(str(resident.role) for resident in plan.headcount)
    hours = _range(plan.run.hours) if plan.run else "unknown"
    peak = bytes_text(plan.deciding.bytes, unit=unit)
    return (name, networks, f"{plan.gpus:,}", peak, hours, _money(plan.run) if plan.run else "unknown")


def _page(title: str, parts: Iterable[str]) -> str:
    style = files("headcount.plan").joinpath("page.css").read_text("utf-8")
    head = (
        '<meta charset="utf-8"><meta name="viewport" content="width=device-width,initial-scale=1">'
        f"<title>{escape(title)}</title><style>{style}</style>"
    )
    return f'<!doctype html><html lang="en"><head>{head}</head><body>{"".join(parts)}</body></html>\n'


def _picture(figure: Callable[[Theme], Figure], title: str) -> str:
    """Both themes; the page shows the one that the reader's system asks for."""
    named = f'<svg role="img" aria-label="{escape(title, quote=True)}"'
    drawn = (f'<div class="{each.name}">{svg(figure(each)).replace("<svg", named, 1)}</div>' for each in (LIGHT, DARK))
    return f'<div class="wide">{"".join(drawn)}</div>'


def _table(header: Cells, rows: Iterable[Cells], *, numbers: int = 0) -> str:
    """The last `numbers` columns are figures."""
    first = len(header) - numbers
    heads = "".join(f"<th{' class=n' if i >= first else ''}>{escape(name)}</th>" for i, name in enumerate(header))
    body = "".join(
        "<tr>" + "".join(f"<td{' class=n' if i >= first else ''}>{escape(c)}</td>" for i, c in enumerate(row)) + "</tr>"
        for row in rows
    )
    return f'<div class="wide"><table><thead><tr>{heads}</tr></thead><tbody>{body}</tbody></table></div>'


def _peaks(footprint: Footprint, unit: str) -> Iterator[str]:
    yield f"<h2>{escape(footprint.group)}: {escape(footprint.layout)}</h2>"
    rows: list[Cells] = []
    for phase in Phase:
        moment = footprint.peak_of(phase)
        if moment is not None:
            largest = max(moment.rows, key=lambda row: row.bytes)
            rows.append((str(phase), moment.name, largest.key, bytes_text(moment.bytes, unit=unit)))
    yield _table(("phase", "worst moment", "largest row", "bytes a GPU"), rows, numbers=1)


def _stages(stages: Sequence[Stage]) -> Iterator[str]:
    yield "<h2>Time and money</h2>"
    if not stages:
        yield "<p>Time: unknown for this card.</p>"
        return
    rows: list[Cells] = []
    for stage in stages:
        rows.append(
            (stage.name, f"{stage.steps:,}", duration_text(stage.step_seconds.p50), _range(stage.hours), _money(stage))
        )
        rows += [(f"— {part.name}", "", _signed(part.band.p50), "", "") for part in stage.step]
    yield _table(("stage", "steps", "a step", "hours", "dollars"), rows, numbers=4)
    yield f'<p class="soft">{escape(stages[-1].price_source)}</p>'


def _signed(seconds: float) -> str:
    return f"−{duration_text(-seconds)}" if seconds < 0 else duration_text(seconds)


def _assumptions(assumptions: Sequence[Assumption]) -> Iterator[str]:
    if assumptions:
        yield "<h2>Assumed</h2>"
        yield _table(("key", "value", "why"), ((a.key, str(a.value), a.text) for a in assumptions))


def _row(row: Row, unit: str) -> str:
    note = f"<p>{escape(row.note)}</p>" if row.note else ""
    source = f'<p class="soft">{escape(row.amount.source)}</p>' if row.amount.source else ""
    return (
        f"<details><summary><code>{escape(row.key)}</code> {bytes_text(row.bytes, unit=unit)} "
        f'<span class="soft">{row.basis}</span></summary><p><code>{escape(row.amount.formula)}</code></p>'
        f"<p><code>{escape(row.amount.numbers)}</code></p>{note}{source}</details>"
    )


def _range(band: Band) -> str:
    return f"{band.p50:,.1f} ({band.p10:,.1f}–{band.p90:,.1f})"


def _money(stage: Stage) -> str:
    return money_text(stage.dollars.p50) if stage.dollars else "no price"
