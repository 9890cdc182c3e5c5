"""What do the stages of a plan add up to: hours, GPU-hours, dollars?"""

from __future__ import annotations

from collections.abc import Sequence

from headcount.ledger.predicted import Band, Stage

__all__ = ["dollars_of", "gpu_hours_of", "hours_of"]


def hours_of(stages: Sequence[Stage]) -> Band:
    """Wall-clock of all stages, one after the other."""
    total = Band.exactly(0)
    for stage in stages:
        total = total.together(stage.hours)
    return total


def gpu_hours_of(stages: Sequence[Stage]) -> float:
    """GPUs held × wall-clock, at p50."""
    return sum(stage.gpu_hours.p50 for stage in stages)


def dollars_of(stages: Sequence[Stage]) -> Band | None:
    """Money of all stages. None: some stage has no price, or there is none."""
    total = Band.exactly(0)
    for stage in stages:
        if stage.dollars is None:
            return None
        total = total.together(stage.dollars)
    return total if stages else None
