"""How does a person see a plan in a terminal?

Tables for what is compared, bars for what is looked at. Colour is never the only carrier; narrow terminals lose columns
in a stated order, never a number's unit.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich import box
from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from headcount.ledger.predicted import Band, Footprint, Moment, Plan, Resident, Row, Stage
from headcount.units import bytes_text, count_text, duration_text, money_text, toml_text
from headcount.vocabulary import Level, Phase, Role, Verdict

__all__ = ["ROLE_MARKS", "band_text", "plan_view"]

_VERDICT_STYLE = {Verdict.FITS: "bold green", Verdict.UNCERTAIN: "bold yellow", Verdict.DOES_NOT_FIT: "bold red"}
_BAR_CELLS = 30
ROLE_MARKS = {
    Role.POLICY: ("P", "blue"),
    Role.CRITIC: ("C", "magenta"),
    Role.REFERENCE: ("r", "cyan"),
    Role.REWARD: ("w", "green"),
    Role.GENERATOR: ("G", "yellow"),
    None: ("#", "bright_black"),
}


def plan_view(plan: Plan, console: Console, *, unit: str = "GiB", rows: bool = False) -> RenderableType:
    """Verdict first; then who, phases against the capacity line, the deciding moment, levels, time, settings."""
    parts: list[RenderableType] = [_headline(plan), _residents_table(plan.headcount, unit)]
    parts += [Text(f"Layout ({footprint.group}): {footprint.layout}\n") for footprint in plan.footprints]
    for footprint in plan.footprints:
        parts += [_phase_bars(footprint, unit), _moment_table(footprint.deciding, unit, console, formulas=rows)]
        parts.append(_levels_table(footprint, unit))
        if footprint.host_moments:
            parts.append(_host_line(footprint, unit))
    parts += [
        Text(f"Disk: {row.item} {bytes_text(row.bytes, unit=unit)} = {row.amount.numbers}") for row in plan.disk_bytes
    ]
    parts.append(_stage_table(plan.stages, details=True))
    parts += [Text(f"Measured: {part.refit}") for stage in plan.stages for part in stage.step if part.refit]
    parts += list(_assumption_lines(plan, unit))
    parts += list(_setting_lines(plan))
    if plan.fixes:
        parts.append(Text("Try one of:", style="bold"))
        parts += [Text(f"  {fix}") for fix in plan.fixes]
    parts += [Text(f"Note: {warning}", style="dim") for warning in plan.warnings]
    return Group(*(Padding(part, (0, 0, 1, 0)) if isinstance(part, Table) else part for part in parts))


def _headline(plan: Plan) -> Text:
    text = Text()
    text.append(f"{plan.verdict}".upper(), style=_VERDICT_STYLE[plan.verdict])
    text.append(f"  {plan.name}: {plan.algorithm} of {plan.model} on {plan.gpus} × {plan.gpu}\n")
    text.append(f"{plan.tightest.because}\n")
    return text


def _residents_table(residents: Sequence[Resident], unit: str) -> Table:
    table = Table(title="Headcount", box=box.SIMPLE_HEAD, title_justify="left")
    for name, justify in (("role", "left"), ("tier", "left"), ("parameters", "right"), ("trained", "right")):
        table.add_column(name, justify=justify)  # type: ignore[arg-type]
    table.add_column("whole state", justify="right")
    table.add_column("where", overflow="fold")
    for resident in residents:
        table.add_row(
            resident.role,
            resident.tier,
            count_text(resident.parameters),
            count_text(resident.trained_parameters) if resident.trained_parameters else "–",
            bytes_text(resident.state_bytes, unit=unit) if resident.state_bytes else "none of its own",
            resident.note or resident.group,
        )
    together = sum(resident.state_bytes for resident in residents)
    table.add_row(
        "together", "", "", "", bytes_text(together, unit=unit), "before any division over GPUs", style="bold"
    )
    return table


def _phase_bars(footprint: Footprint, unit: str) -> Table:
    """One bar a phase at its largest moment, cut by role; `|` is the capacity."""
    capacity = footprint.capacity_bytes[0]
    peaks = [peak for phase in Phase if (peak := footprint.peak_of(phase)) is not None]
    scale = max(capacity, *(peak.bytes for peak in peaks)) / _BAR_CELLS
    marks = "  ".join(f"{mark} {role or 'GPU itself'}" for role, (mark, _) in ROLE_MARKS.items())
    table = Table(
        title=f"Bytes per GPU by phase ({footprint.group}); | is {bytes_text(capacity, unit=unit)}",
        caption=marks,
        box=box.SIMPLE_HEAD,
        title_justify="left",
        caption_justify="left",
    )
    table.add_column("phase")
    table.add_column("peak at")
    table.add_column("bytes", justify="right")
    table.add_column("")
    for peak in peaks:
        table.add_row(
            peak.phase, peak.label.split("/", 1)[-1], bytes_text(peak.bytes, unit=unit), _bar(peak, capacity, scale)
        )
    return table


def _bar(moment: Moment, capacity: int, scale: float) -> Text:
    text = Text()
    drawn = 0
    filled = 0.0
    for role, (mark, style) in ROLE_MARKS.items():
        filled += sum(row.bytes for row in moment.rows if row.role is role) / scale
        cells = round(filled) - drawn
        text.append(mark * cells, style=style)
        drawn += cells
    line = round(capacity / scale)
    text.append("·" * max(0, line - drawn), style="bright_black")
    cells = text[:line] + Text("|", style="bold red") + text[line:]
    return cells


def _moment_table(moment: Moment, unit: str, console: Console, *, formulas: bool) -> Table:
    table = Table(title=f"The deciding moment: {moment.label}", box=box.SIMPLE_HEAD, title_justify="left")
    table.add_column("row", no_wrap=True)
    table.add_column("bytes", justify="right", no_wrap=True)
    wide = formulas or console.width >= 110
    if wide:
        table.add_column("numbers", overflow="fold")
    table.add_column("shrinks with" if wide else "shrinks", overflow="fold")
    table.add_column("basis")
    for row in sorted(moment.rows, key=lambda r: -r.bytes):
        shrinks = ", ".join(row.shrinks_with) or "nothing"
        cells = [row.key.split("/", 1)[1], bytes_text(row.bytes, unit=unit)]
        cells += [_numbers(row)] if wide else []
        table.add_row(*cells, shrinks, row.basis)
    table.add_row("sum", bytes_text(moment.bytes, unit=unit), *([""] if wide else []), "", "", style="bold")
    return table


def _numbers(row: Row) -> str:
    return row.amount.numbers if row.amount.inputs else " + ".join(name for name, _ in row.terms) or row.note


def _levels_table(footprint: Footprint, unit: str) -> Table:
    table = Table(title="Four counters at the peak", box=box.SIMPLE_HEAD, title_justify="left")
    for name in ("level", "p10", "p50", "p90"):
        table.add_column(name, justify="left" if name == "level" else "right")
    for level in Level:
        band = footprint.levels[level]
        table.add_row(level, *(bytes_text(value, unit=unit) for value in (band.p10, band.p50, band.p90)))
    return table


def _host_line(footprint: Footprint, unit: str) -> Text:
    worst = max(footprint.host_moments, key=lambda moment: moment.bytes)
    have = footprint.host_capacity_bytes
    room = f" of {bytes_text(have, unit=unit)}" if have else " (hardware.host_memory_gib not given: not judged)"
    return Text(f"Host memory per node: {bytes_text(worst.bytes, unit=unit)} in {worst.phase}{room}")


def _assumption_lines(plan: Plan, unit: str) -> Iterator[Text]:
    if not plan.assumptions:
        return
    yield Text("Assumed, and what else it could be:", style="bold")
    for each in plan.assumptions:
        others = ", ".join(f"{value} → {change / 2**30:+.2f} GiB" for value, change in each.alternatives)
        fed = sorted({row.key for row in plan.rows() if each.key in row.reads})
        feeds = f"; feeds {', '.join(fed[:4])}" if fed else ""
        yield Text(f"  {each.key} = {each.value}: {each.text}{f' ({others})' if others else ''}{feeds}")


def _setting_lines(plan: Plan) -> Iterator[Text]:
    shown = [setting for setting in plan.settings if setting[2] in ("default", "recipe")]
    if shown:
        yield Text("Not written in the job, so:", style="bold")
    for key, value, origin, text in shown:
        yield Text(f"  {key} = {toml_text(value)}  [{origin}: {text}]", style="dim")


# --- time and money ------------------------------------------------------------------------------------------------


def _stage_table(stages: Sequence[Stage], *, details: bool = False) -> RenderableType:
    if not stages:
        return Text(
            "Time: unknown for this GPU (no measured efficiency, bandwidth or peak); see `headcount facts gpus`"
        )
    table = Table(title="Time and money (p10 to p90)", box=box.SIMPLE_HEAD, title_justify="left")
    for name in ("stage", "steps", "a step", "hours", "GPU-hours", "dollars"):
        table.add_column(name, justify="left" if name == "stage" else "right")
    for stage in stages:
        table.add_row(
            stage.name,
            f"{stage.steps:,}",
            duration_text(stage.step_seconds.p50),
            band_text(stage.hours, "{:,.1f}"),
            band_text(stage.gpu_hours, "{:,.0f}"),
            _dollars(stage.dollars),
        )
        if details:
            for part in stage.step:
                table.add_row(f"  {part.name}", "", duration_text(part.band.p50), "", "", "", style="dim")
            if stage.idle_gpu_hours:
                table.add_row("  idle", "", "", "", f"{stage.idle_gpu_hours:,.0f}", "", style="dim")
            if stage.energy_dollars:
                table.add_row(
                    "  energy, at the power limit", "", "", "", "", _dollars(stage.energy_dollars), style="dim"
                )
    table.caption = stages[-1].price_source
    table.caption_justify = "left"
    return table


def band_text(band: Band, form: str) -> str:
    """`2.1 (1.5–3.0)`: the middle, and p10 to p90."""
    low, middle, high = (form.format(value) for value in (band.p10, band.p50, band.p90))
    return f"{middle} ({low}–{high})"


def _dollars(band: Band | None) -> str:
    if band is None:
        return "no price"
    return f"{money_text(band.p50)} ({money_text(band.p10)}–{money_text(band.p90)})"
