"""How long does the layout search take for 100,000 candidates, and one rollout of 1,024 sequences; how much memory?

One process, medians. The bars: 5 s and 500 MB for the search on one core, 20 ms for the simulation.
"""

from __future__ import annotations

import resource
import statistics
import time

from headcount.estimate.rollout import completion_lengths, rollout_s, schedule
from headcount.job.load import spec_from
from headcount.plan.optimum import search

JOB = {
    "algorithm": "grpo",
    "policy": {"model": "Qwen/Qwen2.5-7B-Instruct"},
    "reward": [{"kind": "math"}],
    "hardware": {"gpu": "h100-sxm"},
    "data": {"prompt_tokens": 4096},
}
ROUNDS = 5


def seconds_of(run, rounds: int = ROUNDS) -> tuple[float, object]:
    took, result = [], None
    for _ in range(rounds):
        start = time.perf_counter()
        result = run()
        took.append(time.perf_counter() - start)
    return statistics.median(took), result


def main() -> None:
    """Print one line a question."""
    spec = spec_from(JOB)
    took, found = seconds_of(lambda: search([spec], gpus=[8, 16]), 3)
    per = took / found.candidates * 100_000
    print(f"search           {found.candidates:,} candidates in {took:.2f} s: {per:.2f} s for 100,000")

    def rollout() -> float:
        schedule.cache_clear()
        completion_lengths.cache_clear()
        order = schedule(completion_lengths(600, 2048), sequences=1024, cap=256, prompt_tokens=512)
        return rollout_s(order, lambda live, cached: 0.005 + 1e-5 * live + 1e-10 * cached)

    took, _ = seconds_of(rollout, 21)
    print(f"rollout          1,024 sequences in {1000 * took:.2f} ms")
    print(f"memory           {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1000:.0f} MB")


if __name__ == "__main__":
    main()
