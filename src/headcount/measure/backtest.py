"""How far off are our plans, on published runs that we had no part in?

Every row becomes a job through the recipes (`mapping/`), is planned, and its prediction is held against what the
source measured, at the level that the source's counter reads.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from headcount.errors import HeadcountError
from headcount.job.job import Job
from headcount.ledger.predicted import Band, Footprint, Moment, Plan
from headcount.measure.mapping.counter import Observation, observation_of
from headcount.measure.mapping.evidence import Case
from headcount.measure.mapping.spec import Mapped, NotMappable, jobs_of
from headcount.units import GIB
from headcount.vocabulary import Level, Verdict

__all__ = ["Score", "backtest"]

_TOP_ROWS = 3
_UNIT_UNCLEAR = 1.073741824  # GiB ÷ GB: how much less a "G" may mean


@dataclass(frozen=True, kw_only=True, slots=True)
class Score:
    """One case: what was predicted, what was observed. Bytes of a memory case are those of one GPU."""

    case: Case
    kind: str  # memory | fits
    recipe: str = ""
    family: tuple[str, str, str] = ("", "", "")  # framework, model, method
    predicted: Band | None = None
    level: Level = Level.DEVICE_USED
    observation: Observation | None = None
    verdict: Verdict | None = None
    deciding: str = ""
    deciding_rows: tuple[tuple[str, int], ...] = ()
    assumed: tuple[str, ...] = ()
    skipped: str = ""
    notes: tuple[str, ...] = field(default=())

    @property
    def signed_error(self) -> float | None:
        """(predicted − observed) ÷ observed of the p50; None where no peak was measured."""
        if self.predicted is None or self.observation is None:
            return None
        return self.predicted.p50 / self.observation.bytes - 1

    @property
    def covered(self) -> bool | None:
        """Does the 80 % band hold the observation?"""
        if self.predicted is None or self.observation is None:
            return None
        return self.predicted.p10 <= self.observation.bytes <= self.predicted.p90

    def as_json(self) -> dict[str, Any]:
        """The documented record of `backtest --json`."""
        observed = self.observation
        return {
            "id": self.case.id,
            "kind": self.kind,
            "predicted": None if self.predicted is None else _in_gib(self.predicted),
            "observed": round(observed.bytes / GIB, 4) if observed else _outcome(self.case.fits),
            "unit": "GiB" if observed else "verdict",
            "level": self.level.value,
            "signed_error": None if self.signed_error is None else round(self.signed_error, 5),
            "verdict": None if self.verdict is None else self.verdict.value,
            "fits": self.case.fits,
            "deciding": {
                "moment": self.deciding,
                "rows": [{"row": name, "GiB": round(size / GIB, 3)} for name, size in self.deciding_rows],
            },
            "assumed": list(self.assumed),
            "skipped": self.skipped or None,
        }


def _in_gib(band: Band) -> dict[str, float]:
    return {name: round(value / GIB, 4) for name, value in (("p10", band.p10), ("p50", band.p50), ("p90", band.p90))}


def _outcome(fits: bool | None) -> str | None:
    return {True: "fits", False: "does not fit", None: None}[fits]


def backtest(cases: Iterable[Case], *, plan: Callable[[Job], Plan]) -> list[Score]:
    """Plan every case and score it. A case that cannot be mapped or planned is skipped with its reason."""
    return [_scored(case, plan) for case in cases]


def _scored(case: Case, plan: Callable[[Job], Plan]) -> Score:
    kind = "memory" if case.measured.get("peak_gb_per_gpu") or case.measured.get("peak_gb_total") else "fits"
    if case.unreadable:
        return Score(case=case, kind=kind, skipped=case.unreadable)
    if case.excluded:
        return Score(case=case, kind=kind, skipped=f"excluded by its source: {case.excluded}")
    try:
        mapped = jobs_of(case)
        return _score(case, kind, mapped, [plan(job) for job in mapped.jobs])
    except NotMappable as reason:
        return Score(case=case, kind=kind, skipped=str(reason))
    except HeadcountError as error:
        return Score(case=case, kind=kind, skipped=" ".join(str(error).split()))
    except (OverflowError, ValueError, TypeError) as error:
        return Score(case=case, kind=kind, skipped=f"a value that no run can have: {error}")


def _score(case: Case, kind: str, mapped: Mapped, plans: Sequence[Plan]) -> Score:
    observation = observation_of(case, recipe=mapped.recipe, gpus=mapped.gpus)
    main = plans[0]
    level = observation.level if observation else Level.DEVICE_USED
    # A measured peak is the trainer's; a verdict is about whichever group of GPUs is tightest.
    held = [_trainer(each) if observation or mapped.trainer_only else each.tightest for each in plans]
    band = _widened(held[0].levels[level], [each.levels[level] for each in held[1:]], observation)
    moment = _deciding(held[0], observation)
    rows = sorted(moment.rows, key=lambda row: -row.bytes)[:_TOP_ROWS]
    verdicts = {_verdict(each, mapped) for each in plans}
    assumptions = tuple(f"{each.key} = {each.value}: {each.text}" for each in main.assumptions)
    return Score(
        case=case,
        kind=kind if observation else "fits",
        recipe=mapped.recipe,
        family=mapped.family,
        predicted=band,
        level=level,
        observation=observation,
        verdict=verdicts.pop() if len(verdicts) == 1 else Verdict.UNCERTAIN,
        deciding=moment.label,
        deciding_rows=tuple((row.key, row.bytes) for row in rows),
        assumed=(*mapped.assumed, *assumptions),
    )


def _verdict(plan: Plan, mapped: Mapped) -> Verdict:
    """Of the whole job; of the trainer alone where the row is about the trainer and its engine runs elsewhere."""
    return _trainer(plan).verdict if mapped.trainer_only else plan.verdict


def _trainer(plan: Plan) -> Footprint:
    return next((footprint for footprint in plan.footprints if footprint.group == "train"), plan.tightest)


def _deciding(held: Footprint, observation: Observation | None) -> Moment:
    """The moment behind the prediction: of a counter inside the trainer's allocator, the allocator's largest."""
    if observation is None or observation.level is Level.DEVICE_USED:
        return held.deciding
    return max(held.moments, key=lambda moment: moment.allocated_bytes)


def _widened(band: Band, others: Sequence[Band], observation: Observation | None) -> Band:
    """The band of the first plan, stretched over plans of other lengths and over a unit that may be GB or GiB."""
    p10 = min((band.p10, *(other.p10 for other in others)))
    p90 = max((band.p90, *(other.p90 for other in others)))
    if observation is not None and observation.unit in ("unclear", "g"):
        p90 *= _UNIT_UNCLEAR
    return Band(p10, band.p50, p90)
