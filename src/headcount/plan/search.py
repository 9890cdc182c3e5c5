"""What is the smallest number of GPUs on which a job fits?"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from headcount.errors import InputError
from headcount.job.job import Job
from headcount.job.load import Spec

__all__ = ["MOST_GPUS", "Fewest", "fewest_gpus"]

MOST_GPUS = 4096


@dataclass(frozen=True, kw_only=True, slots=True)
class Fewest:
    """The smallest count that fits and the job on it; or None, with the largest count tried."""

    job: Job | None
    tried: tuple[tuple[int, str], ...] = ()  # (gpus, why not)


def _doublings(gpus_per_node: int) -> Iterator[int]:
    """1, 2, 4 … GPUs; more than a node only in whole nodes."""
    gpus = 1
    while gpus <= MOST_GPUS:
        yield gpus if gpus <= gpus_per_node else -(-gpus // gpus_per_node) * gpus_per_node
        gpus *= 2


def fewest_gpus(spec: Spec, *, why_not: Callable[[Job], str]) -> Fewest:
    """The smallest count on the job's own layout; where no count helps, on one that divides what sharding cannot.

    `why_not` is empty for a job that fits.

    FSDP gathers whole blocks, so a block that is larger than a card fits on no number of GPUs: then experts, then
    tensors are divided over a node. A layout that the job states is never changed.
    """
    tried: list[tuple[int, str]] = []
    for candidate in _layouts(spec):
        job = _fewest(candidate, why_not, tried)
        if job is not None:
            return Fewest(job=job, tried=tuple(tried))
    return Fewest(job=None, tried=tuple(tried))


def _layouts(spec: Spec) -> Iterator[Spec]:
    yield spec
    if any(key.startswith("layout.") for key in spec.flat):
        return
    if spec.build(gpus=spec.gpus_per_node).policy.shape.moe:
        yield spec.replaced("layout.expert", 8)
    wide = spec.replaced("layout.tensor", 8)
    yield wide.replaced("layout.sequence_parallel", True)


def _fewest(spec: Spec, why_not: Callable[[Job], str], tried: list[tuple[int, str]]) -> Job | None:
    """Double until it fits, then look between the last failure and the first success.

    A count that the layout cannot use (tensor ranks that do not divide it) counts as tried; a job that no count can
    make raises its mistakes.
    """
    refused: list[InputError] = []

    def fitting(gpus: int) -> Job | None:
        try:
            job = spec.build(gpus=gpus)
        except InputError as error:
            refused.append(error)
            return None
        reason = why_not(job)
        if reason:
            tried.append((gpus, reason))
        return None if reason else job

    failed, counts = 0, list(_doublings(spec.gpus_per_node))
    for gpus in counts:
        first = fitting(gpus)
        if first is not None:
            return _between(failed, gpus, first, spec.gpus_per_node, fitting)
        failed = gpus
    if len(refused) == len(counts):
        raise refused[-1]
    return None


def _between(failed: int, fits: int, best: Job, per_node: int, fitting: Callable[[int], Job | None]) -> Job:
    """Every count inside a node, in order; beyond a node bisect over nodes: more of them never need more bytes each."""
    if fits <= per_node:
        smaller = (fitting(gpus) for gpus in range(failed + 1, fits))
        return next((found for found in smaller if found is not None), best)
    low, high = failed // per_node, fits // per_node
    while high - low > 1:
        middle = (low + high) // 2
        candidate = fitting(middle * per_node)
        if candidate is None:
            low = middle
        else:
            best, high = candidate, middle
    return best
