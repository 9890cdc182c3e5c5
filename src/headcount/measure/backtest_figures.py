"""How good were the plans, in a few figures?"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import median

from headcount.measure.backtest import Score
from headcount.vocabulary import Verdict

__all__ = [
    "Errors",
    "Verdicts",
    "by_recipe",
    "errors_of",
    "like_counters",
    "percentile",
    "skips",
    "verdicts_of",
    "without_family",
]

_BADLY_UNDER = -0.10


@dataclass(frozen=True, kw_only=True, slots=True)
class Errors:
    """Errors of memory peaks, as shares of the observation. Over and under are kept apart."""

    count: int
    median_absolute: float
    p90_absolute: float
    over: int
    under: int
    median_over: float
    median_under: float
    badly_under: int  # more than 10 % below: what makes a user run out of memory
    covered: float  # share inside the 80 % band


@dataclass(frozen=True, kw_only=True, slots=True)
class Verdicts:
    """What was said of runs whose end is known."""

    failed: int
    failed_caught: int
    worked: int
    worked_called_impossible: int
    uncertain: int

    @property
    def complete(self) -> int:
        """Runs whose end is known."""
        return self.failed + self.worked


def percentile(values: Sequence[float], share: float) -> float:
    """The smallest value that at least `share` of the values do not exceed; NaN of nothing."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)] if ordered else math.nan


def like_counters(scores: Iterable[Score], *, grade: str = "A") -> list[Score]:
    """Memory cases of a grade whose source names its counter and its unit: the ones that the bars are about."""
    return [
        score
        for score in scores
        if score.signed_error is not None
        and score.case.grade == grade
        and score.observation is not None
        and score.observation.named
    ]


def errors_of(scores: Iterable[Score]) -> Errors:
    """The figures of a set of memory cases."""
    known = [(score.signed_error, bool(score.covered)) for score in scores if score.signed_error is not None]
    errors = [error for error, _ in known]
    over, under = [e for e in errors if e >= 0], [-e for e in errors if e < 0]
    return Errors(
        count=len(errors),
        median_absolute=median(map(abs, errors)) if errors else math.nan,
        p90_absolute=percentile([abs(error) for error in errors], 0.9),
        over=len(over),
        under=len(under),
        median_over=median(over) if over else 0.0,
        median_under=median(under) if under else 0.0,
        badly_under=sum(error < _BADLY_UNDER for error in errors),
        covered=sum(covered for _, covered in known) / len(known) if known else math.nan,
    )


def by_recipe(scores: Iterable[Score]) -> dict[str, list[Score]]:
    """Scores by framework, in the order of the first appearance."""
    groups: dict[str, list[Score]] = defaultdict(list)
    for score in scores:
        groups[score.recipe or "(no framework)"].append(score)
    return dict(groups)


def verdicts_of(scores: Iterable[Score]) -> Verdicts:
    """Count verdicts over the cases that were planned and whose end is known. `uncertain` never counts as caught."""
    known = [score for score in scores if score.verdict is not None and score.case.fits is not None]
    failed = [score for score in known if score.case.fits is False]
    worked = [score for score in known if score.case.fits]
    return Verdicts(
        failed=len(failed),
        failed_caught=sum(score.verdict is Verdict.DOES_NOT_FIT for score in failed),
        worked=len(worked),
        worked_called_impossible=sum(score.verdict is Verdict.DOES_NOT_FIT for score in worked),
        uncertain=sum(score.verdict is Verdict.UNCERTAIN for score in known),
    )


def without_family(scores: Sequence[Score]) -> list[float]:
    """Absolute errors when each family's recipe correction is taken from the other families of its framework.

    What could be fitted to these rows is a level factor per framework: the median ratio of observed to predicted. Each
    family (framework, model, method) is predicted with the factor of the others alone; a framework with one family
    gets none. It answers "would fitting have helped, and does it carry over", and bounds what the shipped recipes,
    which were chosen while looking at these rows, may owe to them.
    """
    errors: list[float] = []
    for score in scores:
        if score.signed_error is None:
            continue
        ratios = [
            1 / (1 + other.signed_error)
            for other in scores
            if other.signed_error is not None and other.recipe == score.recipe and other.family != score.family
        ]
        factor = median(ratios) if ratios else 1.0
        errors.append(abs((1 + score.signed_error) * factor - 1))
    return errors


def skips(scores: Iterable[Score]) -> Counter[str]:
    """Reasons for skipping, with their counts; a reason is cut to its first clause."""
    return Counter(score.skipped.split(";")[0].split(" (")[0][:90] for score in scores if score.skipped)
