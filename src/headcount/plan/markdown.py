"""A plan or a comparison as Markdown, for a design document."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from headcount.ledger.predicted import Band, Footprint, Plan, Stage
from headcount.plan.compare import Compared, Comparison
from headcount.plan.totals import dollars_of, gpu_hours_of, hours_of
from headcount.units import GIB, bytes_text, count_text, duration_text, money_text, toml_text
from headcount.vocabulary import Phase

__all__ = ["comparison_markdown", "plan_markdown"]

Cells = Sequence[str]
_HOURS_AND_MONEY = ("hours (p10–p90)", "GPU-hours", "dollars (p10–p90)")


def plan_markdown(plan: Plan, *, unit: str = "GiB") -> str:
    """Verdict, who is resident, the peak of each phase, stages, what was assumed, what to change."""
    return "\n".join(_plan_lines(plan, unit)).rstrip() + "\n"


def comparison_markdown(comparison: Comparison, *, unit: str = "GiB") -> str:
    """The algorithms side by side, each on its fewest GPUs and all on one count, and the pipelines."""
    return "\n".join(_comparison_lines(comparison, unit)).rstrip() + "\n"


# --- a plan --------------------------------------------------------------------------------------------------------


def _plan_lines(plan: Plan, unit: str) -> Iterator[str]:
    yield f"## {_plain(plan.name)}: {plan.algorithm} of {_plain(plan.model)} on {plan.gpus:,} × {plan.gpu}"
    yield ""
    yield f"**{plan.verdict}**: {_plain(plan.tightest.because)}"
    yield ""
    yield from _table(
        ("network", "tier", "model", "parameters", "whole state"),
        (
            (str(r.role), str(r.tier), r.model, count_text(r.parameters), bytes_text(r.state_bytes, unit=unit))
            for r in plan.headcount
        ),
        figures=2,
    )
    for footprint in plan.footprints:
        yield f"Bytes per GPU, {footprint.group}: {footprint.layout}"
        yield ""
        yield from _peaks(footprint, unit)
    yield from _stages(plan.stages)
    for each in plan.assumptions:
        others = ", ".join(f"{toml_text(value)} → {change / GIB:+.2f} GiB" for value, change in each.alternatives)
        yield f"- assumed {_code(f'{each.key} = {toml_text(each.value)}')}: {_plain(each.text)}" + (
            f" ({_plain(others)})" if others else ""
        )
    yield from (f"- try {_code(fix)}" for fix in plan.fixes)


def _peaks(footprint: Footprint, unit: str) -> Iterator[str]:
    capacity = footprint.capacity_bytes[0]
    peaks = [(phase, moment) for phase in Phase if (moment := footprint.peak_of(phase)) is not None]
    yield from _table(
        ("phase", "worst moment", "largest row", "bytes a GPU", "of the card"),
        (
            (
                str(phase),
                moment.name,
                max(moment.rows, key=lambda row: row.bytes).key,
                bytes_text(moment.bytes, unit=unit),
                f"{moment.bytes / capacity:.0%}",
            )
            for phase, moment in peaks
        ),
        figures=2,
    )


def _stages(stages: Sequence[Stage]) -> Iterator[str]:
    if not stages:
        yield "Time: unknown for this card."
        yield ""
        return
    rows = [(s.name, f"{s.steps:,}", duration_text(s.step_seconds.p50), *_hours_and_money([s])) for s in stages]
    rows.append(("**together**", "", "", *_hours_and_money(stages)))
    yield from _table(("stage", "steps", "a step", *_HOURS_AND_MONEY), rows, figures=5)
    yield f"Prices: {_plain(stages[-1].price_source)}" if stages[-1].price_source else "No price is known."
    yield ""


# --- a comparison --------------------------------------------------------------------------------------------------


def _comparison_lines(comparison: Comparison, unit: str) -> Iterator[str]:
    yield f"## {_plain(comparison.model)} on {comparison.gpu}"
    yield ""
    yield comparison.workload
    yield ""
    header = ("variant", "verdict", "networks", "GPUs", "peak a GPU", *_HOURS_AND_MONEY)
    yield "Each on the fewest GPUs that hold it:"
    yield ""
    yield from _table(header, (_variant(each, each.smallest, unit) for each in comparison.compared), figures=5)
    yield f"All on {comparison.common_gpus:,} GPUs:"
    yield ""
    yield from _table(header, (_variant(each, each.common, unit) for each in comparison.compared), figures=5)
    yield "The whole pipeline, each stage on its own fewest GPUs, start-ups and checkpoints included:"
    yield ""
    yield from _table(
        ("variant", "stages", *_HOURS_AND_MONEY),
        (
            (
                each.variant.name,
                " → ".join(stage.name for stage in each.pipeline if not stage.around),
                *_hours_and_money(each.pipeline),
            )
            for each in comparison.compared
            if each.pipeline
        ),
        figures=3,
    )


def _variant(each: Compared, plan: Plan | None, unit: str) -> Cells:
    if plan is None:
        return (each.variant.name, "none fits", each.why_not, *[""] * 5)
    networks = ", ".join(str(resident.role) for resident in plan.headcount)
    peak = bytes_text(plan.deciding.bytes, unit=unit)
    time = _hours_and_money(plan.stages) if plan.run else ("unknown", "unknown", "unknown")
    return (each.variant.name, str(plan.verdict), networks, f"{plan.gpus:,}", peak, *time)


def _hours_and_money(stages: Sequence[Stage]) -> Cells:
    hours, dollars = hours_of(stages), dollars_of(stages)
    return (_range(hours), f"{gpu_hours_of(stages):,.1f}", _dollars(dollars))


def _range(band: Band) -> str:
    return f"{band.p50:,.1f} ({band.p10:,.1f}–{band.p90:,.1f})"


def _dollars(band: Band | None) -> str:
    if band is None:
        return "no price"
    return f"{money_text(band.p50)} ({money_text(band.p10)}–{money_text(band.p90)})"


# --- Markdown ------------------------------------------------------------------------------------------------------


def _table(header: Cells, rows: Iterable[Cells], *, figures: int = 0) -> Iterator[str]:
    """The last `figures` columns stand to the right. An empty line follows."""
    first = len(header) - figures
    yield f"| {' | '.join(header)} |"
    yield f"|{'|'.join('---' if place < first else '---:' for place in range(len(header)))}|"
    for row in rows:
        yield f"| {' | '.join(_plain(cell) for cell in row)} |"
    yield ""


def _plain(text: str) -> str:
    """One line that no cell, tag, link or emphasis of a name can break; dollars stay money where Markdown knows TeX."""
    line = " ".join(text.split()).replace("&", "&amp;").replace("<", "&lt;")
    for mark in "|[]`$":
        line = line.replace(mark, f"\\{mark}")
    return line


def _code(text: str) -> str:
    line = " ".join(text.split()).replace("`", "'")
    return f"`{line}`"
