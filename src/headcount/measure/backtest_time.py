"""How far off are our seconds, on published rates and steps that we had no part in?"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from headcount.errors import HeadcountError
from headcount.estimate.training import step_seconds
from headcount.facts.training_speed import training_speed
from headcount.job.job import Job
from headcount.ledger.predicted import Band, Plan
from headcount.measure.mapping.evidence import Case
from headcount.measure.time_rows.decode import DecodeRow, Skipped, decode_rows, predicted_tokens_per_s
from headcount.measure.time_rows.planned import PlannedRow, planned_rows
from headcount.measure.time_rows.rl import RlRow, rl_rows
from headcount.measure.time_rows.training import TrainingRow, training_rows

__all__ = ["TimeScore", "is_time_row", "time_lines", "time_scores"]


@dataclass(frozen=True, kw_only=True, slots=True)
class TimeScore:
    """One published rate or time: predicted, observed, in `unit`; or why it is not scored."""

    id: str
    kind: str  # decode | train | rl | time
    segment: str = ""
    predicted: Band | None = None
    observed: float | None = None
    unit: str = ""
    skipped: str = ""
    predicted_share: float | None = None  # of generation in an RL step
    observed_share: float | None = None

    @property
    def signed_error(self) -> float | None:
        """(predicted − observed) ÷ observed of the p50."""
        if self.predicted is None or not self.observed:
            return None
        return self.predicted.p50 / self.observed - 1

    @property
    def covered(self) -> bool:
        """Does the 80 % band hold the observation?"""
        return (
            self.predicted is not None
            and self.observed is not None
            and (self.predicted.p10 <= self.observed <= self.predicted.p90)
        )

    def as_json(self) -> dict[str, Any]:
        """The documented record of `backtest --json`."""
        band = self.predicted
        return {
            "id": self.id,
            "kind": self.kind,
            "segment": self.segment,
            "predicted": None if band is None else {"p10": band.p10, "p50": band.p50, "p90": band.p90},
            "observed": self.observed,
            "unit": self.unit,
            "signed_error": None if self.signed_error is None else round(self.signed_error, 5),
            "verdict": None,
            "deciding": None,
            "assumed": [],
            "skipped": self.skipped or None,
        }


def is_time_row(case: Case) -> bool:
    """A row of the decode, train or rl files: it describes no memory."""
    return any(key in case.fields for key in ("output_tok_s", "tok_s_per_gpu", "step_time_s"))


def time_scores(cases: Sequence[Case], *, plan: Callable[[Job], Plan]) -> list[TimeScore]:
    """Every case with a rate or a time."""
    rows = {key: [_named(case) for case in cases if key in case.fields] for key in _KINDS}
    scores = [_decode(row) for row in decode_rows(rows["output_tok_s"])]
    scores += [_training(row) for row in training_rows(rows["tok_s_per_gpu"])]
    scores += [_rl(row) for row in rl_rows(rows["step_time_s"], plan=plan)]
    jobs = [case for case in cases if not is_time_row(case) and not case.report]
    return scores + [_planned(row) for row in planned_rows(jobs, plan=plan)]


_KINDS = ("output_tok_s", "tok_s_per_gpu", "step_time_s")


def _named(case: Case) -> dict[str, Any]:
    return {"id": case.id, **case.fields}


def _decode(row: DecodeRow | Skipped) -> TimeScore:
    if isinstance(row, Skipped):
        return TimeScore(id=row.id, kind="decode", skipped=row.reason)
    try:
        predicted = predicted_tokens_per_s(row)
    except HeadcountError as error:
        return TimeScore(id=row.id, kind="decode", skipped=str(error))
    return TimeScore(
        id=row.id,
        kind="decode",
        segment=f"decode {row.segment}",
        predicted=predicted,
        observed=row.observed_tokens_per_s,
        unit="tokens/s",
    )


def _training(row: TrainingRow | Skipped) -> TimeScore:
    if isinstance(row, Skipped):
        return TimeScore(id=row.id, kind="train", skipped=row.reason)
    try:
        mixture = row.segment == "megatron-mixture"
        speed = training_speed(row.architecture, row.precision, row.framework, mixture=mixture, release=row.release)
    except HeadcountError as error:
        return TimeScore(id=row.id, kind="train", skipped=str(error))
    rate, (low, high) = row.tokens / row.gpus / float(step_seconds(row.work, speed)), speed.spread
    return TimeScore(
        id=row.id,
        kind="train",
        segment=f"train {row.segment}",
        predicted=Band(rate / high, rate, rate / low),
        observed=row.observed_tokens_per_s_per_gpu,
        unit="tokens/s/GPU",
    )


def _rl(row: RlRow | Skipped) -> TimeScore:
    if isinstance(row, Skipped):
        return TimeScore(id=row.id, kind="rl", skipped=row.reason)
    return TimeScore(
        id=row.id,
        kind="rl",
        segment="rl step",
        predicted=row.predicted_s,
        observed=row.observed_s,
        unit="s",
        predicted_share=row.predicted_share,
        observed_share=row.observed_share,
    )


def _planned(row: PlannedRow | Skipped) -> TimeScore:
    if isinstance(row, Skipped):
        return TimeScore(id=row.id, kind="time", skipped=row.reason)
    return TimeScore(
        id=row.id,
        kind="time",
        segment=f"planned {row.segment}{'' if row.grade in ('A', 'B') else ', grade C'}",
        predicted=row.predicted_s,
        observed=row.observed_s,
        unit="s",
    )


def time_lines(scores: Sequence[TimeScore], *, details: bool) -> Iterator[str]:
    """The table by segment: median, 90th percentile, bias, coverage; skipped rows by reason."""
    known = [score for score in scores if score.signed_error is not None]
    if details:
        for score in known:
            assert score.predicted is not None
            assert score.observed is not None
            yield (
                f"  {score.id:<44} {score.segment:<24} {score.predicted.p50:>12,.1f} {score.observed:>12,.1f} "
                f"{score.unit:<13} {score.signed_error:+8.1%}"
            )
    yield "published rates and times (absolute error of the p50)"
    yield "  segment                     n  median     p90    bias  in band"
    for segment in sorted({score.segment for score in known}):
        inside = [score for score in known if score.segment == segment]
        errors = sorted(abs(score.signed_error or 0.0) for score in inside)
        bias = median(score.signed_error or 0.0 for score in inside)
        ninety = errors[min(len(errors) - 1, int(0.9 * len(errors)))]
        covered = sum(score.covered for score in inside) / len(inside)
        yield f"  {segment:<24} {len(inside):4} {median(errors):7.1%} {ninety:7.1%} {bias:+7.1%} {covered:8.0%}"
    skipped = [score for score in scores if score.skipped]
    yield f"{len(known)} scored, {len(skipped)} skipped"
    for reason, count in Counter(_start(score.skipped) for score in skipped).most_common(12):
        yield f"  {count:4}  {reason}"
    shares = [s for s in known if s.predicted_share is not None and s.observed_share is not None]
    if shares:
        worst = max(abs((score.predicted_share or 0) - (score.observed_share or 0)) for score in shares)
        yield f"share of generation in {len(shares)} RL steps that print phases: at worst {100 * worst:.0f} points off"


def _start(reason: str) -> str:
    return reason.partition(" fix:")[0][:90]
