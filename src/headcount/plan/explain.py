"""How is one number derived, and what are an algorithm's networks for?"""

from __future__ import annotations

from collections.abc import Iterator

from headcount.errors import InputError, Mistake, nearest
from headcount.estimate.model_state import state_total
from headcount.ledger.predicted import Moment, Plan, Row, Seconds, Stage
from headcount.plan.lessons import ALGORITHM_LESSONS, ITEM_LESSONS, NO_KV_IN_SCORE, REMOVED_BY, ROLE_PURPOSE
from headcount.units import GB, bytes_text, count_text, duration_text
from headcount.vocabulary import TABLE, Algorithm, Basis, Phase, Role, phases_of

__all__ = [
    "derivation_lines",
    "explain_algorithm",
    "explain_row",
    "find_row",
    "find_seconds",
    "list_rows",
    "naive_copies_bytes",
]

_BASIS = {
    Basis.EXACT: "exact: arithmetic on the shape and the settings",
    Basis.DATASHEET: "datasheet: a vendor's or a library's stated figure",
    Basis.CALIBRATED: "calibrated: measured elsewhere, with spread",
    Basis.ASSUMED: "assumed",
}


_SECONDS = "seconds/"


def slug(key: str) -> str:
    """A key as it is printed: `Optimizer moments` → optimizer-moments."""
    return key.strip().lower().replace(" ", "-").replace("_", "-")


def find_row(plan: Plan, key: str) -> tuple[Row, Moment]:
    """The row of a key (`update/policy/logits`) where it is largest, and that moment.

    Raises:
        InputError: no such row; the nearest keys and all rows of the phase are named.
    """
    wanted = slug(key)
    best: tuple[Row, Moment] | None = None
    for footprint in plan.footprints:
        for moment in (*footprint.moments, *footprint.host_moments):
            for row in moment.rows:
                if row.key.lower() == wanted and (best is None or row.bytes > best[0].bytes):
                    best = (row, moment)
    if best is not None:
        return best
    keys = sorted({row.key for row in plan.rows()})
    if wanted.startswith("score/") and wanted.endswith("kv-cache"):
        raise InputError(
            [Mistake(where="--row", what=f"there is no {key}. {NO_KV_IN_SCORE}", fix="generate/generator/kv-cache")]
        )
    beside = [k for k in keys if k.split("/")[0] == wanted.split("/")[0]] or keys
    raise InputError.one("--row", f"no row {key!r}. {nearest(wanted, keys)}".strip(), f"one of {', '.join(beside)}")


def _seconds(plan: Plan) -> Iterator[tuple[str, Stage, Seconds]]:
    """Every part of every stage by its key: `seconds/grpo/generate`."""
    for stage in plan.stages:
        for part in stage.step:
            yield f"{_SECONDS}{slug(stage.name)}/{slug(part.name)}", stage, part


def find_seconds(plan: Plan, key: str) -> tuple[str, Stage, Seconds] | None:
    """The part of a stage that a key asks for; None where it asks for bytes.

    Raises:
        InputError: no such part; all are named.
    """
    wanted = slug(key)
    if not wanted.startswith(_SECONDS):
        return None
    parts = {name: (name, stage, part) for name, stage, part in _seconds(plan)}
    if wanted not in parts:
        fix = f"one of {', '.join(parts)}" if parts else "headcount facts gpus: the speed of this card is unknown"
        raise InputError.one("--row", f"no row {key!r}. {nearest(wanted, parts)}".strip(), fix)
    return parts[wanted]


def _explain_seconds(name: str, stage: Stage, part: Seconds) -> Iterator[str]:
    band, times = part.band, f"{stage.steps:,} × in this job"
    yield f"{name}   {duration_text(band.p50)} ({duration_text(band.p10)} to {duration_text(band.p90)}), {times}"
    yield ""
    yield part.because
    if part.refit:
        yield f"Measured: {part.refit}"
    yield ""
    yield f"Basis: {_BASIS[part.basis]}"
    yield f"Share of its stage: {part.band.p50 / stage.step_seconds.p50:.0%}; equations: docs/equations.md"


def list_rows(plan: Plan, *, unit: str = "GiB") -> Iterator[str]:
    """Every row at its largest, the largest first: what `--row` may ask for."""
    largest: dict[str, int] = {}
    for row in plan.rows():
        largest[row.key] = max(row.bytes, largest.get(row.key, 0))
    for key, size in sorted(largest.items(), key=lambda item: (-item[1], item[0])):
        yield f"{bytes_text(size, unit=unit):>14}  {key}"
    yield ""
    for name, _, part in _seconds(plan):
        yield f"{duration_text(part.band.p50):>14}  {name}"
    yield ""
    yield f"One of them: --row {max(largest, key=lambda key: largest[key])}"


def explain_row(plan: Plan, key: str, *, unit: str = "GiB") -> Iterator[str]:
    """One row's derivation where it is largest, line by line; or that of a time."""
    seconds = find_seconds(plan, key)
    if seconds is not None:
        yield from _explain_seconds(*seconds)
        return
    row, moment = find_row(plan, key)
    yield from derivation_lines(plan, row, moment, unit=unit)


def derivation_lines(plan: Plan, row: Row, moment: Moment, *, unit: str = "GiB") -> Iterator[str]:
    """The derivation of a row that is alive at `moment`; the first line names it."""
    what, shrink = ITEM_LESSONS.get(row.item, (row.note or row.item, "its settings, named below"))
    other = "GB" if unit == "GiB" else "GiB"
    yield f"{row.key}   {bytes_text(row.bytes, unit=unit)} per GPU ({bytes_text(row.bytes, unit=other)})"
    yield ""
    yield what
    if row.note and row.note != what:
        yield f"Here: {row.note}."
    yield ""
    if row.amount.inputs:
        yield f"  {row.amount.formula}"
        yield f"= {row.amount.numbers}"
        yield f"= {row.bytes:,} bytes"
        yield from _inputs(row)
    for name, term in row.terms:
        yield f"  {name}: {term.formula}"
        yield f"    = {term.numbers} = {term.bytes:,}"
    if row.terms:
        yield f"= {row.bytes:,} bytes"
    if row.amount.source:
        yield f"  source: {row.amount.source}"
    yield ""
    yield f"Alive at: {moment.label} ({bytes_text(moment.bytes, unit=unit)} in all; this row is {_share(row, moment)})"
    band = row.band
    spread = "" if band.p10 == band.p90 else f", {bytes_text(band.p10, unit=unit)} to {bytes_text(band.p90, unit=unit)}"
    yield f"Basis: {_BASIS[row.basis]}{spread}"
    yield f"Divided by: {', '.join(row.shrinks_with) or 'nothing: no number of GPUs shrinks it'}"
    yield f"Smaller by: {shrink}"
    yield from _settings(plan, row)
    if row.phase is Phase.SCORE:
        yield ""
        yield NO_KV_IN_SCORE


def _inputs(row: Row) -> Iterator[str]:
    names = ", ".join(
        f"{name} {value:,.6g}" if isinstance(value, float) else f"{name} {value:,}" for name, value in row.amount.inputs
    )
    yield f"  where {names}"


def _share(row: Row, moment: Moment) -> str:
    return f"{row.bytes / moment.bytes:.0%}" if moment.bytes else "all"


def _settings(plan: Plan, row: Row) -> Iterator[str]:
    fed = [setting for setting in plan.settings if any(setting[0].startswith(read) for read in row.reads)]
    if fed:
        yield "Fed by:"
    for key, value, origin, text in fed:
        yield f"  {key} = {value}  [{origin}: {text}]"


def naive_copies_bytes(algorithm: Algorithm, *, copy_bytes: float) -> float:
    """Equal copies: networks × bytes of one. The count that everybody starts from."""
    trainable, frozen, _ = ALGORITHM_LESSONS[algorithm]
    return (len(trainable) + len(frozen)) * copy_bytes


def explain_algorithm(algorithm: Algorithm, *, parameters: float = 7e9, copy_gb: float = 10.0) -> Iterator[str]:
    """The networks of an algorithm: what each is for, what it costs, what would remove it."""
    trainable, frozen, lesson = ALGORITHM_LESSONS[algorithm]
    yield f"{algorithm}: {lesson}"
    yield ""
    yield f"At {count_text(parameters)} parameters each, whole model state in GB (10⁹ bytes), nothing divided yet:"
    yield f"  {'role':<11}{'trains':<8}{'12 B':>12}{'16 B':>12}{'18 B':>12}"
    totals = dict.fromkeys((12, 16, 18), 0.0)
    for role in (*trainable, *frozen):
        cells = []
        for each in totals:
            size = state_total(parameters, bytes_per_parameter=each if role in trainable else 2).value / GB
            totals[each] += size
            cells.append(f"{size:>12,.0f}")
        yield f"  {role:<11}{'yes' if role in trainable else 'frozen':<8}{''.join(cells)}"
    yield f"  {'together':<19}{''.join(f'{total:>12,.0f}' for total in totals.values())}"
    yield "  12: 16-bit weights and gradients, fp32 moments; 16: with fp32 master; 18: Hugging Face's count; frozen: 2."
    if algorithm.online:
        yield "  An engine with a copy of its own adds 2 bytes a parameter, a KV cache, a workspace; the built-in none."
    yield ""
    for role in (*trainable, *frozen, *((Role.GENERATOR,) if algorithm.online else ())):
        yield f"{role}: {ROLE_PURPOSE[role]}."
        yield f"  what removes it: {REMOVED_BY[role]}."
    yield ""
    naive = naive_copies_bytes(algorithm, copy_bytes=copy_gb * GB) / GB
    count = len(trainable) + len(frozen)
    yield f"The naive count: {count} equal copies of {copy_gb:g} GB = {naive:g} GB. It leaves out gradients and"
    yield "optimizer state (6 to 9 times a 16-bit copy for what trains), activations, logits, the KV cache, gathered"
    yield "weights and fixed costs, and it counts networks that a setting could remove. `headcount plan` counts them."
    yield ""
    yield "Who is awake in which phase:"
    yield from _table(algorithm)
    if algorithm.online:
        yield ""
        yield NO_KV_IN_SCORE


def _table(algorithm: Algorithm) -> Iterator[str]:
    for phase in phases_of(algorithm):
        for role, states in TABLE[algorithm][phase].items():
            yield f"  {phase:<9}{role:<11}{', '.join(sorted(states))}"
