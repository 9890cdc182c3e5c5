"""A plan or a comparison as one HTML page that needs nothing else: light and dark, on a phone, in print."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from html import escape
from importlib.resources import files

from headcount.ledger.predicted import Assumption, Band, Footprint, Moment, Plan, Row, Stage
from headcount.plan.bytes_chart import VERDICT_MARKS, legend
from headcount.plan.chart import byte_panels, hours_of_each, plan_panels, roles_of, time_charts
from headcount.plan.compare import Compared, Comparison
from headcount.plan.explain import derivation_lines
from headcount.plan.scene import Scene, page_svg, palette_css
from headcount.plan.totals import dollars_of, gpu_hours_of, hours_of
from headcount.units import GIB, bytes_text, count_text, duration_text, money_text, toml_text
from headcount.vocabulary import Level, Phase

__all__ = ["comparison_page", "plan_page"]

Cells = Sequence[str]
_WIDE, _PHONE, _PANEL = 940.0, 340.0, 304.0  # pixels of a drawing


def plan_page(plan: Plan, *, unit: str = "GiB") -> str:
    """Verdict, pictures, who is resident, bytes, hours and money, assumptions, every row's derivation, settings."""
    parts = [
        *_headline(plan, unit),
        _both([legend(roles_of([plan]), width=width) for width in (_WIDE, _PHONE)]),
        *_plan_pictures(plan, unit),
        *_residents(plan, unit),
        *(part for footprint in plan.footprints for part in _peaks(footprint, unit)),
        *_stages(plan.stages),
        *_assumptions(plan.assumptions),
        "<h2>Every row and its derivation</h2>",
        *_ledger(plan, unit),
        "<h2>Settings</h2>",
        _table(
            ("key", "value", "who said so"),
            ((key, toml_text(value), f"{origin}: {text}") for key, value, origin, text in plan.settings),
        ),
    ]
    return _page(f"{plan.name}: {plan.algorithm} of {plan.model}", parts)


def comparison_page(comparison: Comparison, *, unit: str = "GiB") -> str:
    """The algorithms side by side in pictures and tables, each pipeline, and behind each variant its whole plan."""
    title = f"{comparison.model} on {comparison.gpu}"
    smallest = [each.smallest for each in comparison.compared if each.smallest is not None]
    panels = "".join(page_svg(panel) for panel in byte_panels(comparison, width=_PANEL, unit=unit))
    parts = [
        f'<header><h1>{escape(title)}</h1><p class="soft">{escape(comparison.workload)}</p></header>',
        "<h2>Bytes per GPU, each on the fewest GPUs that hold it</h2>",
        _both([legend(roles_of(smallest), width=width) for width in (_WIDE, _PHONE)]),
        f'<div class="panels">{panels}</div>' if smallest else "<p>Nothing fits.</p>",
        _variants(comparison.compared, unit, common=False),
        f"<h2>All on {comparison.common_gpus:,} GPUs</h2>",
        _both([hours_of_each(comparison, width=width) for width in (_WIDE, _PHONE)]),
        _variants(comparison.compared, unit, common=True),
        *_pipelines(comparison.compared),
        "<h2>Behind each variant</h2>",
        *(_behind(each, unit) for each in comparison.compared),
    ]
    return _page(title, parts)


def _page(title: str, parts: Iterable[str]) -> str:
    style = files("headcount.plan").joinpath("page.css").read_text("utf-8")
    head = (
        '<meta charset="utf-8"><meta name="viewport" content="width=device-width,initial-scale=1">'
        f"<title>{escape(title)}</title><style>{palette_css()}{style}</style>"
    )
    body = "\n".join(parts)
    return f'<!doctype html>\n<html lang="en"><head>{head}</head><body>\n{body}\n</body></html>\n'


# --- pictures ------------------------------------------------------------------------------------------------------


def _both(scenes: Sequence[Scene]) -> str:
    """One drawing twice, for a desk and for a phone; the page shows one."""
    wide, phone = scenes
    return f"<figure>{page_svg(wide, classes='desk')}{page_svg(phone, classes='phone')}</figure>"


def _plan_pictures(plan: Plan, unit: str) -> Iterator[str]:
    if len(plan.footprints) == 1:
        yield _both([plan_panels(plan, width=width, unit=unit)[0] for width in (_WIDE, _PHONE)])
    else:
        panels = "".join(page_svg(panel) for panel in plan_panels(plan, width=_PHONE, unit=unit))
        yield f'<div class="panels">{panels}</div>'
    for wide, phone in zip(time_charts(plan, width=_WIDE), time_charts(plan, width=_PHONE), strict=True):
        yield _both([wide, phone])


# --- a plan --------------------------------------------------------------------------------------------------------


def _headline(plan: Plan, unit: str) -> Iterator[str]:
    sign, tone = VERDICT_MARKS[plan.verdict]
    yield f"<header><h1>{escape(plan.name)}</h1>"
    yield f"<p>{escape(f'{plan.algorithm} of {plan.model} on {plan.gpus:,} × {plan.gpu}')}</p>"
    yield f'<p class="verdict t-{tone}">{sign} {plan.verdict}</p><p>{escape(plan.tightest.because)}</p>'
    if plan.fixes:
        yield f"<p>Try one of:</p><ul>{''.join(f'<li><code>{escape(fix)}</code></li>' for fix in plan.fixes)}</ul>"
    yield "".join(f'<p class="soft">{escape(warning)}</p>' for warning in plan.warnings) + "</header>"


def _residents(plan: Plan, unit: str) -> Iterator[str]:
    yield "<h2>Who is resident</h2>"
    yield _table(
        ("network", "tier", "model", "where", "parameters", "trained", "whole state"),
        (
            (
                str(each.role),
                str(each.tier),
                each.model,
                each.note or each.group,
                count_text(each.parameters),
                count_text(each.trained_parameters) if each.trained_parameters else "–",
                bytes_text(each.state_bytes, unit=unit) if each.state_bytes else "none of its own",
            )
            for each in plan.headcount
        ),
        numbers=3,
    )


def _peaks(footprint: Footprint, unit: str) -> Iterator[str]:
    yield f"<h2>Bytes per GPU ({escape(footprint.group)}: {escape(footprint.layout)})</h2>"
    rows: list[Cells] = []
    for phase in Phase:
        moment = footprint.peak_of(phase)
        if moment is not None:
            largest = max(moment.rows, key=lambda row: row.bytes)
            rows.append((str(phase), moment.name, largest.key, bytes_text(moment.bytes, unit=unit)))
    yield _table(("phase", "worst moment", "largest row", "bytes a GPU"), rows, numbers=1)
    levels = ((level, footprint.levels[level]) for level in Level)
    yield _table(
        ("counter at the peak", "p10", "p50", "p90"),
        ((str(name), *(bytes_text(size, unit=unit) for size in (b.p10, b.p50, b.p90))) for name, b in levels),
        numbers=3,
    )


def _stages(stages: Sequence[Stage]) -> Iterator[str]:
    yield "<h2>Time and money, p10 to p90</h2>"
    if not stages:
        yield "<p>Time: unknown for this card (headcount facts gpus).</p>"
        return
    rows: list[Cells] = [
        (each.name, f"{each.steps:,}", duration_text(each.step_seconds.p50), *_hours_and_money(each)) for each in stages
    ]
    rows.append(("together", "", "", *_whole(stages)))
    yield _table(("stage", "steps", "a step", "hours", "GPU-hours", "dollars"), rows, numbers=5)
    parts = (
        (stage.name, str(part.name), part.because, str(part.basis), _signed(part.band.p50))
        for stage in stages
        for part in stage.step
    )
    table = _table(("stage", "part of a step", "because", "basis", "seconds"), parts, numbers=1)
    yield f"<details><summary>The parts of a step and their reasons</summary>{table}</details>"
    yield f'<p class="soft">{escape(stages[-1].price_source)}</p>'


def _hours_and_money(stage: Stage) -> Cells:
    return (_range(stage.hours), f"{stage.gpu_hours.p50:,.1f}", _dollars(stage.dollars))


def _whole(stages: Sequence[Stage]) -> Cells:
    return (_range(hours_of(stages)), f"{gpu_hours_of(stages):,.1f}", _dollars(dollars_of(stages)))


def _dollars(band: Band | None) -> str:
    if band is None:
        return "no price"
    return f"{money_text(band.p50)} ({money_text(band.p10)}–{money_text(band.p90)})"


def _range(band: Band) -> str:
    return f"{band.p50:,.1f} ({band.p10:,.1f}–{band.p90:,.1f})"


def _signed(seconds: float) -> str:
    return f"−{duration_text(-seconds)}" if seconds < 0 else duration_text(seconds)


def _assumptions(assumptions: Sequence[Assumption]) -> Iterator[str]:
    if not assumptions:
        return
    yield "<h2>Assumed, and what else it could be</h2>"
    yield _table(
        ("key", "value", "why", "otherwise, at the peak"),
        (
            (
                each.key,
                toml_text(each.value),
                each.text,
                ", ".join(f"{toml_text(value)} → {change / GIB:+.2f} GiB" for value, change in each.alternatives),
            )
            for each in assumptions
        ),
    )


# --- the ledger ----------------------------------------------------------------------------------------------------


def _ledger(plan: Plan, unit: str) -> Iterator[str]:
    """Each distinct row behind a line that opens: per group and phase, the largest first."""
    for footprint in plan.footprints:
        where = f"{footprint.group}: " if len(plan.footprints) > 1 else ""
        for phase in Phase:
            rows = _rows(footprint, phase)
            if rows:
                yield f"<h3>{escape(where)}{phase}</h3>"
            for row, moment in sorted(rows, key=lambda pair: -pair[0].bytes):
                yield _row(plan, row, moment, unit)


def _rows(footprint: Footprint, phase: Phase) -> list[tuple[Row, Moment]]:
    """Rows of one phase with the largest moment that they are alive in; one of several equal ones."""
    moments = [each for each in (*footprint.moments, *footprint.host_moments) if each.phase is phase]
    found: dict[tuple[str, int], tuple[Row, Moment]] = {}
    for moment in sorted(moments, key=lambda each: -each.bytes):
        for row in moment.rows:
            if row.bytes:
                found.setdefault((row.key, row.bytes), (row, moment))
    return list(found.values())


def _row(plan: Plan, row: Row, moment: Moment, unit: str) -> str:
    one = unit if unit != "both" else "GiB"
    _, *lines = derivation_lines(plan, row, moment, unit=one)
    text = "\n".join(lines).strip()
    return (
        f"<details><summary><code>{escape(row.key)}</code> <b>{bytes_text(row.bytes, unit=unit)}</b> "
        f'<span class="soft">{row.basis}</span></summary><pre>{escape(text)}</pre></details>'
    )


# --- a comparison --------------------------------------------------------------------------------------------------


def _variants(compared: Sequence[Compared], unit: str, *, common: bool) -> str:
    header = ("variant", "verdict", "networks", "GPUs", "peak a GPU", "hours", "GPU-hours", "dollars")
    rows: list[Cells] = []
    for each in compared:
        plan = each.common if common else each.smallest
        if plan is None:
            rows.append((each.variant.name, "none fits", each.why_not, *[""] * 5))
            continue
        sign, _ = VERDICT_MARKS[plan.verdict]
        time = _whole(plan.stages) if plan.run else ("unknown", "unknown", "unknown")
        networks = ", ".join(str(resident.role) for resident in plan.headcount)
        peak = bytes_text(plan.deciding.bytes, unit=unit)
        rows.append((each.variant.name, f"{sign} {plan.verdict}", networks, f"{plan.gpus:,}", peak, *time))
    return _table(header, rows, numbers=5)


def _pipelines(compared: Sequence[Compared]) -> Iterator[str]:
    yield "<h2>The whole pipeline, each stage on its own fewest GPUs</h2>"
    rows: list[Cells] = []
    for each in compared:
        lines = [
            (stage.name, f"{stage.gpus:,}", *_hours_and_money(stage)) for stage in each.pipeline if not stage.around
        ]
        around = [stage for stage in each.pipeline if stage.around]
        if around:
            lines.append((", ".join(dict.fromkeys(stage.name for stage in around)), "", *_whole(around)))
        if each.pipeline:
            lines.append(("together", "", *_whole(each.pipeline)))
        rows += [(each.variant.name if place == 0 else "", *line) for place, line in enumerate(lines)]
    yield _table(("variant", "stage", "GPUs", "hours", "GPU-hours", "dollars"), rows, numbers=4)


def _behind(each: Compared, unit: str) -> str:
    if each.smallest is None:
        return f"<p>{escape(each.variant.name)}: {escape(each.why_not)}</p>"
    plan = each.smallest
    inside = [
        f"<p>{escape(plan.tightest.because)}</p>",
        *_assumptions(plan.assumptions),
        *_ledger(plan, unit),
    ]
    said = f'{escape(each.variant.name)} <span class="soft">on {plan.gpus:,} GPUs: {escape(each.variant.note)}</span>'
    return f'<details class="plan"><summary>{said}</summary>{"".join(inside)}</details>'


def _table(header: Cells, rows: Iterable[Cells], *, numbers: int = 0) -> str:
    """The last `numbers` columns are figures."""
    first = len(header) - numbers
    heads = "".join(f"<th{' class=n' if i >= first else ''}>{escape(name)}</th>" for i, name in enumerate(header))
    body = "".join(
        "<tr>" + "".join(f"<td{' class=n' if i >= first else ''}>{escape(c)}</td>" for i, c in enumerate(row)) + "</tr>"
        for row in rows
    )
    return f'<div class="wide"><table><thead><tr>{heads}</tr></thead><tbody>{body}</tbody></table></div>'
