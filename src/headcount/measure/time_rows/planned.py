"""How far is a planned step from a published one? For rows that describe a whole job, not a kernel or an engine."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from headcount.errors import HeadcountError
from headcount.job.job import Job, RowLayout
from headcount.ledger.predicted import Band, Plan, Stage
from headcount.measure.mapping.evidence import Case, mapping_in
from headcount.measure.mapping.spec import NotMappable, jobs_of
from headcount.measure.time_rows.decode import Skipped

__all__ = ["PlannedRow", "planned_rows", "run_stage"]

_ONLINE = ("grpo", "ppo", "dapo", "rloo")
_LONG = 2048  # tokens of a micro-batch from which launches stop deciding


@dataclass(frozen=True, kw_only=True, slots=True)
class PlannedRow:
    """One published time: seconds of a step, or the seconds in which the step's tokens pass."""

    id: str
    segment: str  # hf | hf-short | fsdp-planned | megatron-planned | rl
    family: tuple[str, str, str]
    predicted_s: Band
    observed_s: float
    grade: str
    job: Job


def planned_rows(cases: Iterable[Case], *, plan: Callable[[Job], Plan]) -> Iterator[PlannedRow | Skipped]:
    """Every case with a time that says of what; the others with their reason."""
    for case in cases:
        if not (case.measured.get("step_s") or case.measured.get("tokens_per_s")):
            continue
        try:
            yield _planned(case, plan)
        except (NotMappable, HeadcountError) as reason:
            yield Skipped(case.id, " ".join(str(reason).split())[:160])
        except (TypeError, ValueError, ZeroDivisionError, OverflowError) as reason:
            yield Skipped(case.id, f"a field has no sense: {reason}")


def run_stage(plan: Plan) -> Stage:
    """The stage that the job is about."""
    return next(stage for stage in plan.stages if not stage.around and stage.gpus and stage.steps > 0 and stage.step)


def _planned(case: Case, plan: Callable[[Job], Plan]) -> PlannedRow:
    mapped = jobs_of(case)
    job = _with_rows(case, mapped.jobs[0])
    planned = plan(job)
    if not planned.stages:
        raise NotMappable("no speed is known for this card")
    step = run_stage(planned).step_seconds
    observed = _observed_s(case, job)
    return PlannedRow(
        id=case.id,
        segment=_segment(case, job),
        family=mapped.family,
        predicted_s=step,
        observed_s=observed,
        grade=case.grade,
        job=job,
    )


def _with_rows(case: Case, job: Job) -> Job:
    """Offline a step is the rows that the source counts in one; memory does not ask, time does."""
    rows = mapping_in(case.fields, "batch").get("global_batch")
    if job.algorithm.online or not isinstance(rows, int) or rows < 1:
        return job
    return job.replaced("work.rows_per_step", rows)


def _segment(case: Case, job: Job) -> str:
    if case.fields.get("algorithm") in _ONLINE:
        return "rl"
    micro = (
        job.update.sequences * job.lengths.row_mean if job.update.rows is not RowLayout.PACKED else job.update.tokens
    )
    return "hf" if micro >= _LONG else "hf-short"


def _observed_s(case: Case, job: Job) -> float:
    """Seconds of one planned step: stated, or its tokens over the stated rate."""
    measured, batch = case.measured, mapping_in(case.fields, "batch")
    rate, scope = measured.get("tokens_per_s"), str(measured.get("tokens_per_s_scope") or "")
    tokens = job.work.rows_per_step * job.work.group_size * (2 if job.algorithm.pairs else 1) * job.lengths.row_mean
    if rate and scope in ("per gpu", "aggregate") and not job.algorithm.online:
        return tokens / (float(rate) * (job.gpus if scope == "per gpu" else 1))
    step = measured.get("step_s")
    if not step:
        raise NotMappable("a rate without a scope")
    if not job.algorithm.online and not batch.get("global_batch"):
        raise NotMappable("seconds of a step whose rows are not stated")
    return float(step)
