"""How do hours and money grow with the number of GPUs, and what stops a run from getting faster?"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from headcount.errors import InputError
from headcount.job.job import EnginePlacement, Job
from headcount.job.load import Spec
from headcount.ledger.predicted import Plan
from headcount.plan.planner import plan
from headcount.plan.step_time import latency_share, straggler_share
from headcount.plan.training_time import wire_share
from headcount.vocabulary import Phase

__all__ = ["Point", "counts_in", "scale_json", "scaled"]

_MOST = 65536
_LARGE = 0.3  # a share of the step that decides how it scales


@dataclass(frozen=True, kw_only=True, slots=True)
class Point:
    """One number of GPUs: the plan, how much faster it is than the first that fits, and what binds it."""

    gpus: int
    plan: Plan | None
    speedup: float | None = None
    efficiency: float | None = None  # speed-up over the growth in GPUs
    bound: str = ""
    shares: tuple[tuple[str, float], ...] = ()
    why_not: str = ""


def counts_in(text: str) -> list[int]:
    """`8` → [8]; `8..1024` → 8, 16 … 1024; `8,24,96` as written.

    Raises:
        InputError: no such range.
    """
    try:
        if ".." in text:
            low, high = (int(part) for part in text.split("..", 1))
            counts = [low << shift for shift in range(17) if low << shift <= high]
        else:
            counts = [int(part) for part in text.split(",")]
    except ValueError:
        counts = []
    if not counts or min(counts) < 1 or max(counts) > _MOST:
        raise InputError.one("--gpus", f"{text!r} is no count of 1 to {_MOST:,} GPUs", "--gpus 8, 8..1024 or 8,16,24")
    return counts


def scaled(spec: Spec, counts: Sequence[int]) -> list[Point]:
    """The same job on each count. The workload stays: more GPUs share the same step."""
    first: tuple[int, float] | None = None
    points: list[Point] = []
    for gpus in counts:
        try:
            job = spec.build(gpus=gpus)
        except InputError as error:
            points.append(Point(gpus=gpus, plan=None, why_not=error.mistakes[0].what))
            continue
        planned = plan(job)
        seconds = planned.run.step_seconds.p50 if planned.run else None
        if seconds and first is None:
            first = job.gpus, seconds
        speedup = first[1] / seconds if first and seconds else None
        growth = job.gpus / first[0] if first else 1.0
        shares = tuple(_shares(job, planned)) if seconds else ()
        points.append(
            Point(
                gpus=job.gpus,
                plan=planned,
                speedup=speedup,
                efficiency=speedup / growth if speedup else None,
                bound=_bound(shares),
                shares=shares,
            )
        )
    return points


def _bound(shares: Sequence[tuple[str, float]]) -> str:
    name, share = max(shares, key=lambda each: each[1], default=("", 0.0))
    return name if share >= _LARGE else "work" if shares else ""


def _shares(job: Job, planned: Plan) -> Iterator[tuple[str, float]]:
    """Of a step: waiting for bytes between GPUs, for the busiest replica, the longest answer, the other side."""
    assert planned.run is not None
    step = {part.name: part.band.p50 for part in planned.run.step}
    whole = planned.run.step_seconds.p50
    updates = {name: value for name, value in step.items() if name.startswith(str(Phase.UPDATE))}
    policy = next((value for name, value in updates.items() if name.endswith(str(job.policy.role))), 0.0)
    yield "communication", policy * wire_share(job, job.policy) / whole
    if job.engine is None:
        return
    generate = step.get(str(Phase.GENERATE), 0.0)
    yield "stragglers", generate * straggler_share(job) / whole
    yield "longest answer", generate * latency_share(job) / whole
    if job.engine.placement is EnginePlacement.SEPARATE and planned.run.steps:
        idle = planned.run.idle_gpu_hours / max(1e-9, planned.run.gpu_hours.p50)
        yield "idle GPUs", idle
    yield "fixed costs", sum(step.get(name, 0.0) for name in (str(Phase.SYNC), "wake", "fixed")) / whole


def scale_json(points: Sequence[Point]) -> dict[str, Any]:
    """The stable form (docs/json.md)."""
    return {"schema": "headcount.scale/1", "points": [_point(point) for point in points]}


def _point(point: Point) -> dict[str, Any]:
    run = point.plan.run if point.plan else None
    return {
        "gpus": point.gpus,
        "verdict": str(point.plan.verdict) if point.plan else None,
        "step_s": run.step_seconds.p50 if run else None,
        "hours": {"p10": run.hours.p10, "p50": run.hours.p50, "p90": run.hours.p90} if run else None,
        "gpu_hours": run.gpu_hours.p50 if run else None,
        "dollars": run.dollars.p50 if run and run.dollars else None,
        "speedup": point.speedup,
        "efficiency": point.efficiency,
        "bound": point.bound,
        "shares": dict(point.shares),
        "why_not": point.why_not or None,
    }
