"""Who is resident, where do the bytes peak, does it fit, how long, at what cost: one job's Plan."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from headcount.errors import InputError
from headcount.job.job import Job, Origin
from headcount.job.load import Spec, read_spec
from headcount.ledger.predicted import Assumption, Band, Footprint, Plan, largest
from headcount.plan.footprint import footprints, needed_bytes
from headcount.plan.phases import cache_file_row
from headcount.plan.residents import residents
from headcount.plan.schedule import stages
from headcount.plan.search import fewest_gpus
from headcount.vocabulary import Verdict

__all__ = ["Found", "fewest", "plan", "read_job"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Found:
    """The plan at the fewest GPUs; None with the reason when no count fits."""

    plan: Plan | None
    why_not: str = ""


def read_job(path: str | os.PathLike[str], *, overrides: Sequence[str] = (), gpus: int | None = None) -> Job:
    """A complete job from its file; on the fewest GPUs that hold it when no count is stated.

    Raises:
        InputError: every mistake at once; or no count of GPUs holds the job.
    """
    spec = read_spec(path, overrides=overrides)
    if gpus or spec.gpus:
        return spec.build(gpus=gpus)
    found = fewest_gpus(spec, footprints=footprints)
    if found.job is None:
        raise InputError.one(str(path), f"not even {found.tried[-1][0]} GPUs hold it: {found.tried[-1][1]}")
    return found.job


def plan(job: Job) -> Plan:
    """The whole answer to one job. Milliseconds; loads no torch."""
    return _planned(job, footprints(job))


def _planned(job: Job, held: tuple[Footprint, ...]) -> Plan:
    assumptions = tuple(_assumptions(job, held))
    return Plan(
        name=job.name,
        algorithm=job.algorithm,
        model=job.policy.shape.name,
        gpu=job.gpu.name,
        headcount=residents(job),
        footprints=tuple(_widened(footprint, assumptions) for footprint in held),
        stages=stages(job),
        assumptions=assumptions,
        settings=tuple((key, source.value, source.origin, source.text) for key, source in job.sources.items()),
        fixes=tuple(_fixes(job, held)),
        warnings=(job.gpu.capacity_note,),
        disk_bytes=tuple(row for row in (cache_file_row(job),) if row),
    )


def fewest(spec: Spec) -> Found:
    """The plan on the smallest number of GPUs that holds the job."""
    found = fewest_gpus(spec, footprints=footprints)
    if found.job is None:
        gpus, why = found.tried[-1]
        return Found(plan=None, why_not=f"not even {gpus} GPUs: {why}")
    return Found(plan=_planned(found.job, found.footprints))


def _peak_bytes(held: tuple[Footprint, ...]) -> int:
    return max(largest(footprint.moments).bytes for footprint in held)


def _assumptions(job: Job, held: tuple[Footprint, ...]) -> Iterator[Assumption]:
    """Every assumed setting, and what each other plausible value would do to the peak."""
    base = _peak_bytes(held)
    for key, source in job.sources.items():
        if source.origin is not Origin.ASSUMED:
            continue
        changes: list[tuple[object, int]] = []
        for value in source.alternatives:
            try:
                changes.append((value, _peak_bytes(footprints(job.replaced(key, value))) - base))
            except InputError:
                continue  # the alternative contradicts something that was stated
        yield Assumption(key=key, value=source.value, text=source.text, alternatives=tuple(changes))


def _widened(footprint: Footprint, assumptions: tuple[Assumption, ...]) -> Footprint:
    """The levels' bands with each assumption's alternatives added in quadrature, and the verdict on the wider band."""
    down = math.hypot(*(min([0, *(change for _, change in a.alternatives)]) for a in assumptions))
    up = math.hypot(*(max([0, *(change for _, change in a.alternatives)]) for a in assumptions))
    if not down and not up:
        return footprint
    levels = {level: _spread(band, down, up) for level, band in footprint.levels.items()}
    safe, driver = footprint.capacity_bytes
    need = _spread(needed_bytes(footprint.moments), down, up)
    verdict = footprint.verdict
    if verdict is Verdict.FITS and need.p90 > driver and need.p50 > 0.97 * safe:
        verdict = Verdict.UNCERTAIN
    if verdict is Verdict.DOES_NOT_FIT and down and need.p10 < safe:
        verdict = Verdict.UNCERTAIN
    return replace(footprint, levels=levels, verdict=verdict)


def _spread(band: Band, down: float, up: float) -> Band:
    return Band(
        band.p50 - math.hypot(band.p50 - band.p10, down), band.p50, band.p50 + math.hypot(band.p90 - band.p50, up)
    )


def _fixes(job: Job, held: tuple[Footprint, ...]) -> Iterator[str]:
    """Single changes that would make the job fit, each tried, the cheapest in speed first."""
    if all(footprint.verdict is Verdict.FITS for footprint in held):
        return
    base = _peak_bytes(held)
    for key, value in _LEVERS:
        try:
            changed = footprints(job.replaced(key, value))
        except InputError:
            continue
        saved = base - _peak_bytes(changed)
        fits = all(footprint.verdict is Verdict.FITS for footprint in changed)
        if saved > 0:
            yield f"{key} = {value!r}: saves {saved / 2**30:.1f} GiB per GPU{', then it fits' if fits else ''}"


_LEVERS: tuple[tuple[str, object], ...] = (
    ("update.loss_implementation", "chunked"),
    ("update.gradient_checkpointing", "full"),
    ("update.micro_batch_sequences", 1),
    ("policy.optimizer", "adamw-fused"),
    ("rollout.sleep_level", 2),
    ("reference.placement", "offload"),
    ("reference.placement", "cached"),
    ("layout.root_split", True),
    ("layout.offload_optimizer", True),
    ("policy.tuning", "lora"),
)
