"""What is the smallest number of GPUs on which a job fits?"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from headcount.errors import InputError
from headcount.job.job import Job
from headcount.job.load import Spec
from headcount.ledger.predicted import Footprint
from headcount.vocabulary import Verdict

__all__ = ["MOST_GPUS", "Fewest", "fewest_gpus"]

MOST_GPUS = 4096

Fitting = tuple[Job, tuple[Footprint, ...]]


@dataclass(frozen=True, kw_only=True, slots=True)
class Fewest:
    """The smallest count that fits and the job on it; or None, with the largest count tried."""

    job: Job | None
    footprints: tuple[Footprint, ...] = ()
    tried: tuple[tuple[int, str], ...] = ()  # (gpus, why not)


def _doublings(gpus_per_node: int) -> Iterator[int]:
    """1, 2, 4 … GPUs; more than a node only in whole nodes."""
    gpus = 1
    while gpus <= MOST_GPUS:
        yield gpus if gpus <= gpus_per_node else -(-gpus // gpus_per_node) * gpus_per_node
        gpus *= 2


def fewest_gpus(spec: Spec, *, footprints: Callable[[Job], tuple[Footprint, ...]]) -> Fewest:
    """Double until it fits, then look between the last failure and the first success.

    A count that the layout cannot use (TP that does not divide it) counts as tried. Between nodes only whole nodes are
    looked at. More GPUs never need more bytes each, so the search may bisect.
    """
    tried: list[tuple[int, str]] = []

    def fitting(gpus: int) -> Fitting | None:
        try:
            job = spec.build(gpus=gpus)
        except InputError as error:
            if gpus >= MOST_GPUS:
                raise
            tried.append((gpus, str(error.mistakes[0])))
            return None
        held = footprints(job)
        for footprint in held:
            if footprint.verdict is not Verdict.FITS:
                tried.append((gpus, f"{footprint.group}: {footprint.because}"))
                return None
        return job, held

    failed = 0
    per_node = spec.gpus_per_node
    for gpus in _doublings(per_node):
        first = fitting(gpus)
        if first is not None:
            job, held = _between(failed, gpus, first, per_node, fitting)
            return Fewest(job=job, footprints=held, tried=tuple(tried))
        failed = gpus
    return Fewest(job=None, tried=tuple(tried))


def _between(failed: int, fits: int, best: Fitting, per_node: int, fitting: Callable[[int], Fitting | None]) -> Fitting:
    """Bisect over the counts between a failure and a success, in single GPUs inside a node and in nodes beyond."""
    unit = 1 if fits <= per_node else per_node
    low, high = failed // unit, fits // unit
    while high - low > 1:
        middle = (low + high) // 2
        candidate = fitting(middle * unit)
        if candidate is None:
            low = middle
        else:
            best, high = candidate, middle
    return best
