"""How does a person see a plan and a comparison in a terminal?

Tables for what is compared, bars for what is looked at. Colour is never the only carrier; narrow terminals lose columns
in a stated order, never a number's unit.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence

from rich import box
from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from headcount.ledger.predicted import Band, Footprint, Moment, Plan, Resident, Row, Stage
from headcount.plan.compare import Compared, Comparison
from headcount.plan.levers import Pulled
from headcount.plan.scale import Point
from headcount.units import bytes_text, count_text, duration_text, money_text, toml_text
from headcount.vocabulary import Level, Phase, Role, Tier, Verdict

__all__ = ["comparison_view", "plan_view", "row_lines"]

_VERDICT_STYLE = {Verdict.FITS: "bold green", Verdict.UNCERTAIN: "bold yellow", Verdict.DOES_NOT_FIT: "bold red"}
_BAR_CELLS = 30
_ROLE_MARKS = {
    Role.POLICY: ("P", "blue"),
    Role.CRITIC: ("C", "magenta"),
    Role.REFERENCE: ("r", "cyan"),
    Role.REWARD: ("w", "green"),
    Role.GENERATOR: ("G", "yellow"),
    None: ("#", "bright_black"),
}


# --- plan --------------------------------------------------------------------------------------------------------


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
    marks = "  ".join(f"{mark} {role or 'GPU itself'}" for role, (mark, _) in _ROLE_MARKS.items())
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
    for role, (mark, style) in _ROLE_MARKS.items():
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
            _range(stage.hours, "{:,.1f}"),
            _range(stage.gpu_hours, "{:,.0f}"),
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


def _range(band: Band, form: str) -> str:
    low, middle, high = (form.format(value) for value in (band.p10, band.p50, band.p90))
    return f"{middle} ({low}–{high})"


def _dollars(band: Band | None) -> str:
    if band is None:
        return "no price"
    return f"{money_text(band.p50)} ({money_text(band.p10)}–{money_text(band.p90)})"


# --- comparison ----------------------------------------------------------------------------------------------------


def comparison_view(comparison: Comparison, console: Console, *, unit: str = "GiB") -> RenderableType:
    """The algorithms side by side: at their fewest GPUs, at one common count, and the pipelines around them."""
    parts: list[RenderableType] = [
        Text(f"{comparison.model} on {comparison.gpu}", style="bold"),
        Text(f"Workload: {comparison.workload}\n"),
        _side_by_side(comparison.compared, console, unit, common=None),
        _side_by_side(comparison.compared, console, unit, common=comparison.common_gpus),
        _pipeline_table(comparison),
        *(Text(f"{each.variant.name}: {each.why_not}") for each in comparison.compared if each.smallest is None),
        Text(_legend(console)),
        Text("State is every network's whole weights, gradients and optimizer state, before any division over GPUs."),
    ]
    return Group(*parts)


def _legend(console: Console) -> str:
    if console.width >= 120:
        return "T trains (weights, gradients, optimizer), f frozen (weights only), (f) borrows another's weights."
    return "P policy, C critic (train); r reference, w reward (frozen); G generator; (x) borrows another's weights."


def _side_by_side(compared: Sequence[Compared], console: Console, unit: str, *, common: int | None) -> Table:
    """Narrow terminals lose, in this order: where the peak is, role names (letters stay), hours, state, letters."""
    title = f"All on {common} GPUs" if common else "Each on the fewest GPUs that hold it"
    wide, medium, narrow = console.width >= 120, console.width >= 96, console.width < 76
    table = Table(title=title, box=box.SIMPLE_HEAD, title_justify="left")
    table.add_column("variant", min_width=14, overflow="fold")
    if common is None and not narrow:
        table.add_column("resident", min_width=20 if wide else 9, overflow="fold")
        table.add_column("state", justify="right", no_wrap=True, min_width=13)
    if common is None:
        table.add_column("GPUs", justify="right", no_wrap=True)
    table.add_column("peak a GPU", justify="right", no_wrap=True, min_width=12)
    if wide:
        table.add_column("at", overflow="fold")
    if medium:
        table.add_column("hours", justify="right", no_wrap=True)
        table.add_column("GPU-hours", justify="right", no_wrap=True, min_width=9)
    table.add_column("dollars", justify="right", no_wrap=True, min_width=8)
    for each in compared:
        plan = each.common if common else each.smallest
        if plan is None:
            table.add_row(each.variant.name, *["–"] * (len(table.columns) - 1))
            continue
        cells = [each.variant.name]
        if common is None and not narrow:
            state = sum(resident.state_bytes for resident in plan.headcount)
            cells += [_who(plan.headcount, letters=not wide), bytes_text(state, unit=unit)]
        cells += [str(plan.gpus)] if common is None else []
        cells += [_peak_text(plan, unit)]
        cells += [plan.deciding.label] if wide else []
        hours = _total(plan.stages)
        cells += [f"{hours.p50:,.1f}", f"{hours.p50 * plan.gpus:,.1f}"] if medium else []
        table.add_row(*cells, _total_dollars(plan.stages))
    return table


def _peak_text(plan: Plan, unit: str) -> str:
    text = bytes_text(plan.deciding.bytes, unit=unit)
    return text if plan.verdict is Verdict.FITS else f"{text} {'?' if plan.verdict is Verdict.UNCERTAIN else '✗'}"


def _who(residents: Sequence[Resident], *, letters: bool) -> str:
    """`policy T, critic T, reference f`; or letters: `P C r w G`, brackets where weights are borrowed."""
    names = []
    for resident in residents:
        mark = "T" if resident.tier is Tier.TRAINABLE else "f"
        borrowed = resident.weights_of is not None or not resident.state_bytes
        if letters:
            letter = _ROLE_MARKS[resident.role][0]
            names.append(f"({letter})" if borrowed else letter)
        else:
            names.append(f"{resident.role} {f'({mark})' if borrowed else mark}")
    return (" " if letters else ", ").join(names)


def _total(stages: Sequence[Stage]) -> Band:
    total = Band.exactly(0)
    for stage in stages:
        total = total.together(stage.hours)
    return total


def _total_dollars(stages: Sequence[Stage]) -> str:
    if not stages or any(stage.dollars is None for stage in stages):
        return "no price"
    return money_text(sum(stage.dollars.p50 for stage in stages if stage.dollars))


def _pipeline_table(comparison: Comparison) -> Table:
    table = Table(
        title="The whole pipeline, each stage on its own fewest GPUs", box=box.SIMPLE_HEAD, title_justify="left"
    )
    for name in ("variant", "stage", "GPUs", "hours", "GPU-hours", "dollars"):
        table.add_column(name, justify="left" if name in ("variant", "stage") else "right")
    for each in comparison.compared:
        for index, stage in enumerate(stage for stage in each.pipeline if not stage.around):
            table.add_row(
                each.variant.name if index == 0 else "",
                stage.name,
                str(stage.gpus),
                _range(stage.hours, "{:,.1f}"),
                f"{stage.gpu_hours.p50:,.0f}",
                money_text(stage.dollars.p50) if stage.dollars else "no price",
            )
        for line in _around_line(each.pipeline):
            table.add_row(*line, style="dim")
        if len(each.pipeline) > 1:
            gpu_hours = sum(stage.gpu_hours.p50 for stage in each.pipeline)
            hours = _total(each.pipeline)
            cells = ("", "together", "", _range(hours, "{:,.1f}"), f"{gpu_hours:,.0f}", _total_dollars(each.pipeline))
            table.add_row(*cells, style="bold")
    return table


def _around_line(stages: Sequence[Stage]) -> Iterator[Sequence[str]]:
    """All start-ups, checkpoints and evaluations of a pipeline in one line."""
    around = [stage for stage in stages if stage.around]
    if around:
        names = ", ".join(dict.fromkeys(stage.name.partition(" (")[0] for stage in around))
        gpu_hours = sum(stage.gpu_hours.p50 for stage in around)
        yield "", names, "", _range(_total(around), "{:,.1f}"), f"{gpu_hours:,.0f}", _total_dollars(around)


def row_lines(row: Row, unit: str) -> Iterator[str]:
    """One row in a line, for lists."""
    yield f"{row.key:<48} {bytes_text(row.bytes, unit=unit):>12}  {_numbers(row)}"


# --- levers and scale ----------------------------------------------------------------------------------------------


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
            _range(run.hours, "{:,.1f}"),
            money_text(run.dollars.p50) if run.dollars else "no price",
            f"{speedup:.1f} ×  {point.efficiency or 0:.0%}",
            "█" * max(1, round(10 * speedup / fastest)),
            _largest_share(point),
        )
    return table
