"""How is a backtest printed?"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence

from headcount.measure.backtest import Score
from headcount.measure.backtest_figures import (
    Errors,
    by_recipe,
    errors_of,
    like_counters,
    percentile,
    skips,
    verdicts_of,
    without_family,
)
from headcount.measure.backtest_time import TimeScore, time_lines
from headcount.units import GIB

__all__ = ["backtest_json", "backtest_text"]


def backtest_json(scores: Sequence[Score], times: Sequence[TimeScore] = ()) -> str:
    """The list of records, one a case; the format is documented in docs/evidence.md."""
    return json.dumps([score.as_json() for score in (*scores, *times)], indent=1, ensure_ascii=False)


def backtest_text(scores: Sequence[Score], times: Sequence[TimeScore] = (), *, details: bool = True) -> str:
    """A line for each case, then the figures."""
    lines: list[str] = []
    if details and scores:
        lines += [*_memory_lines(scores), "", *_verdict_lines(scores), "", *_skip_lines(scores), ""]
    lines += _figure_lines(scores) if scores else []
    if any(score.signed_error is not None for score in times):
        lines += ["", *time_lines(times, details=details)]
    return "\n".join(lines)


def _memory_lines(scores: Sequence[Score]) -> Iterator[str]:
    yield "memory of one GPU, GiB (p10 / p50 / p90)"
    for score in scores:
        if score.predicted is None or score.observation is None:
            continue
        band, seen = score.predicted, score.observation
        yield (
            f"  {score.case.id:<58} {band.p10 / GIB:7.2f} {band.p50 / GIB:7.2f} {band.p90 / GIB:7.2f}"
            f"  observed {seen.bytes / GIB:7.2f} {score.level.value:<11} {(score.signed_error or 0) * 100:+6.1f} %"
            f"  {'in ' if score.covered else 'out'} {score.verdict or '':<12} {_because(score)}"
        )
        yield from _assumed_lines(score)


def _verdict_lines(scores: Sequence[Score]) -> Iterator[str]:
    yield "does it fit (device-used p50, GiB)"
    for score in scores:
        if score.predicted is None or score.observation is not None:
            continue
        seen = {True: "fits", False: "does not fit", None: "not known"}[score.case.fits]
        yield (
            f"  {score.case.id:<58} {score.predicted.p50 / GIB:8.2f}  said {score.verdict or '':<12}"
            f"  observed {seen:<12} {_because(score)}"
        )
        yield from _assumed_lines(score)


def _because(score: Score) -> str:
    rows = ", ".join(f"{name} {size / GIB:.1f}" for name, size in score.deciding_rows)
    return f"{score.deciding}: {rows}"


def _assumed_lines(score: Score) -> Iterator[str]:
    if score.assumed:
        yield f"      assumed: {'; '.join(score.assumed)}"


def _skip_lines(scores: Sequence[Score]) -> Iterator[str]:
    yield "skipped"
    for score in scores:
        if score.skipped:
            yield f"  {score.case.id:<58} {score.skipped}"


def _figure_lines(scores: Sequence[Score]) -> Iterator[str]:
    yield from _skip_figures(scores)
    like = like_counters(scores)
    if all(score.skipped for score in scores):
        return
    yield ""
    yield "grade A memory rows whose counter is named, like counters compared (absolute error, %)"
    yield (
        f"  {'framework':<22} {'n':>4} {'median':>7} {'p90':>7} {'over':>5} {'by':>6} {'under':>6} {'by':>6}"
        f" {'>10 % under':>12} {'in band':>8}"
    )
    for recipe, group in by_recipe(like).items():
        yield _error_line(recipe, errors_of(group))
    if like:
        yield _error_line("all", errors_of(like))
    others = [score for score in scores if score.signed_error is not None and score not in like]
    if others:
        yield _error_line("other memory rows", errors_of(others))
    held_out = without_family(like)
    if held_out:
        yield (
            f"  a factor per framework, fitted without the row's own (framework, model, method) family:"
            f" median {percentile(held_out, 0.5) * 100:.1f} %, p90 {percentile(held_out, 0.9) * 100:.1f} %"
        )
    yield ""
    yield from _verdict_figures(scores)


def _skip_figures(scores: Sequence[Score]) -> Iterator[str]:
    skipped = sum(bool(score.skipped) for score in scores)
    yield f"{len(scores)} cases, {skipped} skipped ({_share(skipped, len(scores))})"
    first = [score for score in scores if score.case.grade == "A"]
    if first:
        left = sum(bool(score.skipped) for score in first)
        yield f"  grade A: {len(first)} cases, {left} skipped ({_share(left, len(first))})"
    for reason, count in skips(scores).most_common():
        yield f"  {count:4}  {reason}"


def _error_line(name: str, errors: Errors) -> str:
    return (
        f"  {name:<22} {errors.count:4} {errors.median_absolute * 100:7.1f} {errors.p90_absolute * 100:7.1f}"
        f" {errors.over:5} {errors.median_over * 100:6.1f} {errors.under:6} {errors.median_under * 100:6.1f}"
        f" {errors.badly_under:12} {errors.covered * 100:7.0f}%"
    )


def _verdict_figures(scores: Sequence[Score]) -> Iterator[str]:
    groups = {
        "published rows": [score for score in scores if not score.case.report and score.case.grade in ("A", "B")],
        "published rows, grade C": [
            score for score in scores if not score.case.report and score.case.grade not in ("A", "B")
        ],
        "plan-ready reports": [score for score in scores if score.case.report and score.case.plan_ready],
    }
    yield "verdicts"
    for name, group in groups.items():
        counted = verdicts_of(group)
        if counted.complete:
            yield (
                f"  {name}: ran out of memory and said so {counted.failed_caught} of {counted.failed}"
                f" ({_share(counted.failed_caught, counted.failed)}); worked but called impossible"
                f" {counted.worked_called_impossible} of {counted.worked}; uncertain {counted.uncertain}"
                f" ({_share(counted.uncertain, counted.complete)})"
            )


def _share(part: int, whole: int) -> str:
    return f"{100 * part / whole:.0f} %" if whole else "–"
