"""How far is a planned step from a published one? For rows that describe a whole job, not a kernel or an engine."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from headcount.errors import HeadcountError
from headcount.facts.recipe import recipes
from headcount.job.job import Job, RowLayout
from headcount.ledger.predicted import Band, Plan
from headcount.measure.mapping.evidence import Case, mapping_in
from headcount.measure.mapping.spec import Mapped, NotMappable, jobs_of
from headcount.measure.time_rows.decode import Skipped

__all__ = ["PlannedRow", "planned_rows"]

_ONLINE = ("grpo", "ppo", "dapo", "rloo")
_TRUNCATING = ("ms-swift", "ms-swift-megatron")
_TOO_LITTLE = ("lengths_unknown", "throughput_lengths_unknown", "batch_unknown", "gpu_type_not_stated")
_ITERATIONS = ("litgpt",)  # print seconds of one micro-batch
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


def _planned(case: Case, plan: Callable[[Job], Plan]) -> PlannedRow:
    mapped = jobs_of(case)
    _say_enough(case, mapped)
    job = _with_rows(case, mapped)
    planned = plan(job)
    if planned.run is None:
        raise NotMappable("no speed is known for this card")
    step = planned.run.step_seconds
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


def _say_enough(case: Case, mapped: Mapped) -> None:
    """Time asks for real lengths and whole batches, where memory is content with a cap."""
    batch, flags = mapping_in(case.fields, "batch"), case.fields.get("flags") or ()
    unknown = [flag for flag in flags if flag in _TOO_LITTLE]
    if unknown:
        raise NotMappable(f"its source flags {unknown[0]}")
    if any(word in str(case.fields.get("precision")).lower() for word in ("fp8", "float8", "fp4")):
        raise NotMappable("8-bit training is scored with the training rows")
    if case.fields.get("algorithm") in _ONLINE:
        if mapped.trainer_only or not (batch.get("avg_completion_tokens") or batch.get("avg_seq_tokens")):
            raise NotMappable("mean lengths of the completions are not stated")
        if not (batch.get("prompts_per_step") or batch.get("global_batch")):
            raise NotMappable("completions of a step are not stated")
    elif mapped.recipe in _TRUNCATING and batch.get("packing") is not True:
        raise NotMappable("a cap is not a length: rows of chats rarely fill it")


def _with_rows(case: Case, mapped: Mapped) -> Job:
    """Offline a step is the rows that the source counts in one; memory does not ask, time does."""
    job, batch = mapped.jobs[0], mapping_in(case.fields, "batch")
    rows = batch.get("global_batch")
    if mapped.recipe in _ITERATIONS and batch.get("micro_batch_per_gpu"):
        rows = int(batch["micro_batch_per_gpu"]) * job.layouts["train"].data
    if isinstance(stated := batch.get("seq_len"), int) and job.lengths.row_max != stated:
        raise NotMappable("rows are divided over ranks in a way that the job does not state")
    if job.algorithm.online or not isinstance(rows, int) or rows < 1:
        return job
    if rows < job.layouts["train"].data:
        raise NotMappable("fewer rows a step than ranks: sequences are divided in a way that is not stated")
    return job.replaced("work.rows_per_step", rows)


def _segment(case: Case, job: Job) -> str:
    """By what decides the time: an RL step, or the class of trainer; eager ones apart where launches decide."""
    if case.fields.get("algorithm") in _ONLINE:
        return "rl"
    speed = recipes()[job.recipe.partition("@")[0]].speed
    packed = job.update.rows is RowLayout.PACKED
    micro = job.update.tokens if packed else job.update.sequences * job.lengths.row_mean
    return f"{speed}-short" if speed == "hf" and micro < _LONG else speed


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
    if not job.algorithm.online and not (batch.get("global_batch") or job.recipe in _ITERATIONS):
        raise NotMappable("seconds of a step whose rows are not stated")
    return float(step)
