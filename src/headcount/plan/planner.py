"""Who is resident, where do the bytes peak, does it fit, how long, at what cost: one job's Plan."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

from headcount.errors import InputError
from headcount.job.job import Job, Origin, Source
from headcount.job.load import Spec, read_spec
from headcount.ledger.predicted import Assumption, Band, Footprint, Plan, largest
from headcount.plan.footprint import footprints, needed_bytes, why_not
from headcount.plan.phases import cache_file_row
from headcount.plan.residents import residents
from headcount.plan.schedule import stages
from headcount.plan.search import fewest_gpus
from headcount.units import toml_text
from headcount.vocabulary import Verdict

__all__ = ["Found", "fewest", "fewest_job", "plan", "read_job"]

Tried = tuple[tuple[object, tuple[Footprint, ...]], ...]


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
    return fewest_job(spec)


def fewest_job(spec: Spec) -> Job:
    """The job on the fewest GPUs that hold it.

    Raises:
        InputError: no count of GPUs does.
    """
    found = fewest_gpus(spec, why_not=why_not)
    if found.job is None:
        raise InputError.one(spec.where, f"not even {found.tried[-1][0]} GPUs hold it: {found.tried[-1][1]}")
    return found.job


def plan(job: Job) -> Plan:
    """The whole answer to one job. Milliseconds; loads no torch."""
    return _planned(job, footprints(job))


def _planned(job: Job, held: tuple[Footprint, ...]) -> Plan:
    tried = _tried(job)
    base = _peak_bytes(held)
    return Plan(
        name=job.name,
        algorithm=job.algorithm,
        model=job.policy.shape.name,
        gpu=job.gpu.name,
        headcount=residents(job),
        footprints=tuple(_widened(footprint, tried) for footprint in held),
        stages=stages(job),
        assumptions=tuple(_assumption(key, job.sources[key], each, base) for key, each in tried.items()),
        settings=tuple((key, source.value, source.origin, source.text) for key, source in job.sources.items()),
        fixes=tuple(_fixes(job, held)),
        warnings=(job.gpu.capacity_note,),
        disk_bytes=tuple(row for row in (cache_file_row(job),) if row),
    )


def fewest(spec: Spec) -> Found:
    """The plan on the smallest number of GPUs that holds the job."""
    found = fewest_gpus(spec, why_not=why_not)
    if found.job is None:
        gpus, why = found.tried[-1]
        return Found(plan=None, why_not=f"not even {gpus} GPUs: {why}")
    return Found(plan=plan(found.job))


def _peak_bytes(held: tuple[Footprint, ...]) -> int:
    return max(largest(footprint.moments).bytes for footprint in held)


def _tried(job: Job) -> dict[str, Tried]:
    """Every assumed setting's other plausible values, each planned; those that contradict the job are left out."""
    tried: dict[str, Tried] = {}
    for key, source in job.sources.items():
        if source.origin is not Origin.ASSUMED:
            continue
        tried[key] = ()
        for value in source.alternatives:
            with suppress(InputError):
                tried[key] = (*tried[key], (value, footprints(job.replaced(key, value))))
    return tried


def _assumption(key: str, source: Source, tried: Tried, base: int) -> Assumption:
    """The setting, and what each other value would do to the peak."""
    changes = tuple((value, _peak_bytes(held) - base) for value, held in tried)
    return Assumption(key=key, value=source.value, text=source.text, alternatives=changes)


def _widened(footprint: Footprint, tried: Mapping[str, Tried]) -> Footprint:
    """Each band widened by what the alternatives do to that very figure, assumptions added in quadrature."""

    def widened(band: Band, figure: Callable[[Footprint], float]) -> Band:
        others = (
            [figure(same) - band.p50 for _, held in each for same in held if same.group == footprint.group]
            for each in tried.values()
        )
        changes = [changed for changed in others if changed]
        down = math.hypot(*(min(0.0, *changed) for changed in changes))
        up = math.hypot(*(max(0.0, *changed) for changed in changes))
        return _spread(band, down, up)

    levels = {
        level: widened(band, lambda held, at=level: held.levels[at].p50) for level, band in footprint.levels.items()
    }
    need = widened(needed_bytes(footprint.moments), lambda held: needed_bytes(held.moments).p50)
    return replace(footprint, levels=levels, verdict=_on_wider_band(footprint, need))


def _on_wider_band(footprint: Footprint, need: Band) -> Verdict:
    """Near the limit an assumption decides: uncertain. Far from it the job's own figures do."""
    safe, driver = footprint.capacity_bytes
    own = needed_bytes(footprint.moments)
    if footprint.verdict is Verdict.FITS and need.p90 > driver and need.p50 > 0.97 * safe:
        return Verdict.UNCERTAIN
    if footprint.verdict is Verdict.DOES_NOT_FIT and need.p10 < min(own.p10, safe):
        return Verdict.UNCERTAIN
    return footprint.verdict


def _spread(band: Band, down: float, up: float) -> Band:
    low = band.p50 - math.hypot(band.p50 - band.p10, down)
    return Band(max(0.0, low), band.p50, band.p50 + math.hypot(band.p90 - band.p50, up))


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
            yield f"{key} = {toml_text(value)}: saves {saved / 2**30:.1f} GiB per GPU{', then it fits' if fits else ''}"


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
