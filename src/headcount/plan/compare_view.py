"""How does a person see the algorithms side by side in a terminal?

Narrow terminals lose columns in a stated order, never a number's unit.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich import box
from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from headcount.ledger.predicted import Band, Plan, Resident, Stage
from headcount.plan.compare import Compared, Comparison
from headcount.plan.report import ROLE_MARKS, band_text
from headcount.units import bytes_text, money_text
from headcount.vocabulary import Tier, Verdict

__all__ = ["comparison_view"]


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
            letter = ROLE_MARKS[resident.role][0]
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
                band_text(stage.hours, "{:,.1f}"),
                f"{stage.gpu_hours.p50:,.0f}",
                money_text(stage.dollars.p50) if stage.dollars else "no price",
            )
        for line in _around_line(each.pipeline):
            table.add_row(*line, style="dim")
        if len(each.pipeline) > 1:
            gpu_hours = sum(stage.gpu_hours.p50 for stage in each.pipeline)
            hours, dollars = band_text(_total(each.pipeline), "{:,.1f}"), _total_dollars(each.pipeline)
            table.add_row("", "together", "", hours, f"{gpu_hours:,.0f}", dollars, style="bold")
    return table


def _around_line(stages: Sequence[Stage]) -> Iterator[Sequence[str]]:
    """All start-ups, checkpoints and evaluations of a pipeline in one line."""
    around = [stage for stage in stages if stage.around]
    if around:
        names = ", ".join(dict.fromkeys(stage.name.partition(" (")[0] for stage in around))
        gpu_hours = sum(stage.gpu_hours.p50 for stage in around)
        yield "", names, "", band_text(_total(around), "{:,.1f}"), f"{gpu_hours:,.0f}", _total_dollars(around)
