"""How long do `compare` and `plan` take in a fresh process, and how much memory?

Medians of interleaved runs, warm disk. The bars: under 0.5 s and under 200 MB.
"""

from __future__ import annotations

import resource
import statistics
import subprocess
import sys
import time

COMMANDS = {
    "compare": ["compare", "--model", "Qwen/Qwen2.5-7B-Instruct", "--gpu", "h100-sxm"],
    "plan": ["plan", "configs/plan/grpo-7b-checker.toml"],
    "explain": ["explain", "ppo"],
    "python -c pass": [],
}
ROUNDS = 11


def once(arguments: list[str]) -> tuple[float, float]:
    """(seconds, largest resident megabytes of any child so far)."""
    command = [sys.executable, "-m", "headcount.cli", *arguments] if arguments else [sys.executable, "-c", "pass"]
    start = time.perf_counter()
    subprocess.run(command, stdout=subprocess.DEVNULL, check=False)
    return time.perf_counter() - start, resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1000


def main() -> None:
    """Print one line a command."""
    seconds: dict[str, list[float]] = {name: [] for name in COMMANDS}
    largest = 0.0
    for _ in range(ROUNDS):
        for name, arguments in COMMANDS.items():
            took, largest = once(arguments)
            seconds[name].append(took)
    for name, values in seconds.items():
        print(f"{name:<16} median {statistics.median(values):.3f} s   worst {max(values):.3f} s")
    print(f"largest process  {largest:.0f} MB")


if __name__ == "__main__":
    main()
