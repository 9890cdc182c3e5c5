"""What does a run do beside its steps, and whose prices pay for it?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from headcount.job.job import Money, Upkeep
from headcount.job.settings import Settings

__all__ = ["money_of", "upkeep_of"]


def money_of(settings: Settings) -> Money:
    """The `[cost]` section."""

    def number(name: str) -> float | None:
        stated = settings.get(f"cost.{name}")
        return None if stated is None else float(stated)

    return Money(
        price_per_gpu_hour=number("price_per_gpu_hour"),
        provider=settings.get("cost.provider"),
        spot=bool(settings.get("cost.spot", False)),
        usd_per_kwh=number("usd_per_kwh"),
        usd_per_preference=number("usd_per_preference"),
    )


def upkeep_of(settings: Settings, rewards: Sequence[Mapping[str, Any]]) -> Upkeep:
    """Checkpoints and evaluations of `[work]`; seconds and workers of the reward functions, which run in turn."""
    timed = [row for row in rewards if "seconds" in row]
    slowest = max(timed, key=lambda row: float(row["seconds"]) / int(row.get("workers", 1)), default={})
    return Upkeep(
        save_every=int(settings.get("work.save_every", 0)),
        evaluate_every=int(settings.get("work.evaluate_every", 0)),
        evaluation_prompts=int(settings.get("work.evaluation_prompts", 0)),
        evaluation_samples=int(settings.get("work.evaluation_samples", 1)),
        verifier_s=float(slowest.get("seconds", 0.0)),
        verifier_workers=int(slowest.get("workers", 1)),
    )
