"""A plan or a comparison as Markdown, for a design document."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from headcount.ledger.predicted import Band, Plan
from headcount.plan.compare import Comparison
from headcount.units import bytes_text, count_text, money_text
from headcount.vocabulary import Phase

__all__ = ["comparison_markdown", "plan_markdown"]


def plan_markdown(plan: Plan, *, unit: str = "GiB") -> str:
    """Verdict, who is resident, the peak of each phase, stages, what was assumed."""
    return "\n".join(_plan_lines(plan, unit)) + "\n"


def comparison_markdown(comparison: Comparison, *, unit: str = "GiB") -> str:
    """The algorithms side by side, each on its fewest GPUs."""
    lines = [f"## {comparison.model} on {comparison.gpu}", "", comparison.workload, ""]
    header = ("variant", "GPUs", "networks", "peak a GPU", "at", "hours", "dollars")
    rows = [_variant(each.variant.name, each.smallest, unit) for each in comparison.compared]
    return "\n".join([*lines, *_table(header, rows)]) + "\n"


def _variant(name: str, plan: Plan | None, unit: str) -> tuple[str, ...]:
    if plan is None:
        return (name, "none fits", "", "", "", "", "")
    run = plan.run
    networks = ", ".join(str(resident.role) for resident in plan.headcount)
    return (
        name,
        f"{plan.gpus:,}",
        networks,
        bytes_text(plan.deciding.bytes, unit=unit),
        plan.deciding.label,
        _range(run.hours) if run else "unknown",
        money_text(run.dollars.p50) if run and run.dollars else "no price",
    )


def _plan_lines(plan: Plan, unit: str) -> Iterator[str]:
    yield f"## {_plain(plan.name)}: {plan.algorithm} of {plan.model} on {plan.gpus:,} × {plan.gpu}"
    yield ""
    yield f"**{plan.verdict}**: {plan.tightest.because}"
    yield ""
    header = ("network", "tier", "model", "parameters", "state")
    yield from _table(
        header,
        [
            (str(r.role), str(r.tier), r.model, count_text(r.parameters), bytes_text(r.state_bytes, unit=unit))
            for r in plan.headcount
        ],
    )
    yield ""
    for footprint in plan.footprints:
        yield f"{footprint.group}: {footprint.layout}"
        yield ""
        peaks = [(phase, footprint.peak_of(phase)) for phase in Phase]
        rows = [
            (str(phase), moment.name, bytes_text(moment.bytes, unit=unit), max(moment.rows, key=lambda r: r.bytes).key)
            for phase, moment in peaks
            if moment is not None
        ]
        yield from _table(("phase", "worst moment", "bytes a GPU", "largest row"), rows)
        yield ""
    if plan.stages:
        rows = [
            (s.name, f"{s.steps:,}", _range(s.hours), money_text(s.dollars.p50) if s.dollars else "no price")
            for s in plan.stages
        ]
        yield from _table(("stage", "steps", "hours", "dollars"), rows)
        yield ""
    for assumption in plan.assumptions:
        yield f"- assumed {assumption.key} = {assumption.value}: {_plain(assumption.text)}"


def _range(band: Band) -> str:
    return f"{band.p50:,.1f} ({band.p10:,.1f}–{band.p90:,.1f})"


def _table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    yield f"| {' | '.join(header)} |"
    yield f"|{'|'.join('---' for _ in header)}|"
    for row in rows:
        yield f"| {' | '.join(_plain(cell) for cell in row)} |"


def _plain(text: str) -> str:
    """One line, no cell broken by a bar."""
    return " ".join(text.split()).replace("|", "\\|")
