"""How long do one engine replica's completions take, when short ones finish first and the cache caps how many run?

Continuous batching as a fluid: a queue of sequences, at most `cap` of them live; each decode step costs what the live
batch and its cache cost; a finished sequence makes room for the next.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from heapq import heappop, heappush
from statistics import NormalDist

__all__ = ["Stretch", "completion_lengths", "fixed_rate_s", "rollout_s", "schedule"]

_SIGMA = 0.7  # of log length: reasoning and chat completions are right-skewed; the mean and the cap are given
_QUANTILES = 64


@dataclass(frozen=True, kw_only=True, slots=True)
class Stretch:
    """A run of decode steps between two finished sequences: how many, with how many live, over how much cache."""

    steps: float
    live: float
    cached_tokens: float


@lru_cache(maxsize=256)
def completion_lengths(mean: float, cap: int, count: int = _QUANTILES) -> tuple[float, ...]:
    """Evenly spaced quantiles of a log-normal cut at `cap` whose mean is `mean`; all equal when mean is the cap."""
    if mean >= cap:
        return (float(cap),) * count
    shape = [NormalDist(0, _SIGMA).inv_cdf((i + 0.5) / count) for i in range(count)]
    factors = [2.718281828459045**z for z in shape]
    low, high = 0.0, 64.0 * cap
    for _ in range(60):
        middle = (low + high) / 2
        got = sum(min(cap, middle * f) for f in factors) / count
        low, high = (middle, high) if got < mean else (low, middle)
    return tuple(max(1.0, min(float(cap), high * f)) for f in factors)


def fixed_rate_s(*, prompts: int, group_size: int, completion_tokens: float, tokens_per_s: float) -> float:
    """At one length and a given aggregate rate: prompts × group_size × completion_tokens ÷ rate."""
    return prompts * group_size * completion_tokens / tokens_per_s


@lru_cache(maxsize=64)
def schedule(lengths: tuple[float, ...], *, sequences: int, cap: int, prompt_tokens: float) -> tuple[Stretch, ...]:
    """Who runs beside whom: `sequences` completions, drawn round-robin from `lengths`, through `cap` slots.

    The order of events does not depend on how long a step takes: all live sequences advance by the same number of
    tokens, so one schedule serves every estimate of the step time.
    """
    bundles = [(lengths[i % len(lengths)]) for i in range(min(sequences, 4 * len(lengths)))]
    weight = sequences / len(bundles)
    slots = max(1, min(len(bundles), int(cap / weight) or 1))
    waiting = list(reversed(_interleaved(bundles)))
    running: list[tuple[float, float]] = []  # (token clock at which it ends, its length)
    clock = 0.0
    stretches: list[Stretch] = []
    while waiting or running:
        while waiting and len(running) < slots:
            length = waiting.pop()
            heappush(running, (clock + length, length))
        steps = running[0][0] - clock
        live = min(weight * len(running), float(max(cap, 1)))
        done = sum(length - (end - clock) for end, length in running) / len(running)
        cached = live * (prompt_tokens + done + steps / 2)
        stretches.append(Stretch(steps=steps, live=live, cached_tokens=cached))
        clock = running[0][0]
        while running and running[0][0] <= clock:
            heappop(running)
    return tuple(stretches)


def rollout_s(stretches: tuple[Stretch, ...], step_s: Callable[[float, float], float]) -> float:
    """Seconds until the last sequence stops; `step_s(live, cached_tokens)` is one decode step."""
    return sum(stretch.steps * step_s(stretch.live, stretch.cached_tokens) for stretch in stretches)


def _interleaved(bundles: list[float]) -> list[float]:
    """Long and short mixed, deterministically: a stride that is coprime with most counts."""
    count = len(bundles)
    stride = next(s for s in range(max(1, round(count * 0.618)), count + 2) if _coprime(s, count))
    return [bundles[(i * stride) % count] for i in range(count)]


def _coprime(a: int, b: int) -> bool:
    while b:
        a, b = b, a % b
    return a == 1
