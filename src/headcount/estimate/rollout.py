"""How long do one engine replica's completions take, when short ones finish first and the cache caps how many run?

Continuous batching as a fluid: a queue of sequences, at most `cap` of them live; each decode step costs what the live
batch and its cache cost; a finished sequence makes room for the next.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from heapq import heappop, heappush
from itertools import pairwise
from math import exp, sqrt
from statistics import NormalDist, fmean, pstdev

__all__ = ["Stretch", "completion_lengths", "fixed_rate_s", "quantiles", "rollout_s", "schedule", "slowest_share"]

_QUANTILES = 64
_SIBLINGS = 0.4  # correlation of the lengths of one prompt's completions (assumed: long problems have long answers)


@dataclass(frozen=True, kw_only=True, slots=True)
class Stretch:
    """A run of decode steps between two finished sequences: how many, with how many live, over how much cache."""

    steps: float
    live: float
    cached_tokens: float


@lru_cache(maxsize=256)
def completion_lengths(mean: float, cap: int, sigma: float = 0.7, count: int = _QUANTILES) -> tuple[float, ...]:
    """Evenly spaced quantiles of a log-normal cut at `cap` whose mean is `mean`; all equal when mean is the cap.

    `sigma` is the standard deviation of the logarithm; 0 gives one length.
    """
    if mean >= cap or sigma == 0:
        return (min(float(cap), mean),) * count
    shape = [exp(NormalDist(0, sigma).inv_cdf((i + 0.5) / count)) for i in range(count)]
    low, high = 0.0, 64.0 * cap
    for _ in range(60):
        middle = (low + high) / 2
        got = sum(min(cap, middle * factor) for factor in shape) / count
        low, high = (middle, high) if got < mean else (low, middle)
    return tuple(max(1.0, min(float(cap), high * factor)) for factor in shape)


def quantiles(drawn: tuple[float, ...], count: int = _QUANTILES) -> tuple[float, ...]:
    """`count` lengths that stand for many sorted ones: the mean of each of `count` equal slices."""
    if len(drawn) <= count:
        return drawn
    edges = [round(i * len(drawn) / count) for i in range(count + 1)]
    return tuple(fmean(drawn[start:stop]) for start, stop in pairwise(edges))


def slowest_share(lengths: tuple[float, ...], *, prompts: int, group_size: int, replicas: int) -> float:
    """Work of the busiest of `replicas` over the mean one's, when `prompts` fall on them at random.

    A replica's sum of n lengths spreads by cv ÷ √n_eff around its mean; the largest of R such sums lies
    Φ⁻¹(1 − 1 ÷ (R + 1)) spreads above it. Siblings resemble each other: n_eff = n ÷ (1 + (group − 1) · ρ).
    """
    if replicas < 2:
        return 1.0
    alone = prompts * group_size / replicas / (1 + (group_size - 1) * _SIBLINGS)
    spread = pstdev(lengths) / fmean(lengths) / sqrt(max(1.0, alone))
    return 1.0 + spread * NormalDist().inv_cdf(1 - 1 / (replicas + 1))


def fixed_rate_s(*, prompts: int, group_size: int, completion_tokens: float, tokens_per_s: float) -> float:
    """At one length and a given aggregate rate: prompts × group_size × completion_tokens ÷ rate."""
    return prompts * group_size * completion_tokens / tokens_per_s


@lru_cache(maxsize=256)
def schedule(lengths: tuple[float, ...], *, sequences: int, cap: int, prompt_tokens: float) -> tuple[Stretch, ...]:
    """Who runs beside whom: `sequences` completions, drawn round-robin from `lengths`, through `cap` slots.

    The order of events does not depend on how long a step takes: all live sequences advance by the same number of
    tokens, so one schedule serves every estimate of the step time.
    """
    bundles = [lengths[i % len(lengths)] for i in range(min(sequences, 4 * len(lengths)))]
    weight = sequences / len(bundles)
    slots = max(1, min(len(bundles), int(cap / weight) or 1))
    waiting = list(reversed(_interleaved(bundles)))
    running: list[tuple[float, float]] = []  # (token clock at which it ends, its length)
    clock = grown = 0.0  # `grown`: tokens that the live sequences have written so far, in bundles
    stretches: list[Stretch] = []
    while waiting or running:
        while waiting and len(running) < slots:
            length = waiting.pop()
            heappush(running, (clock + length, length))
        steps = running[0][0] - clock
        live = min(weight * len(running), float(max(cap, 1)))
        cached = live * (prompt_tokens + grown / len(running) + steps / 2)
        stretches.append(Stretch(steps=steps, live=live, cached_tokens=cached))
        clock = running[0][0]
        grown += steps * len(running)
        while running and running[0][0] <= clock:
            grown -= heappop(running)[1]
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
