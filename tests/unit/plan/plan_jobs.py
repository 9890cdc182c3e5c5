"""Jobs for tests: a file's worth of settings with some of them changed."""

from __future__ import annotations

from typing import Any

from headcount.job.job import Job
from headcount.job.load import Spec, spec_from

BASE: dict[str, Any] = {
    "algorithm": "grpo",
    "policy.model": "Qwen/Qwen2.5-7B-Instruct",
    "reward": [{"kind": "math"}],
    "hardware.gpu": "h100-sxm",
    "hardware.gpus": 8,
}


def spec(**changes: Any) -> Spec:
    """`rollout__group_size=4` sets rollout.group_size."""
    flat = BASE | {key.replace("__", "."): value for key, value in changes.items()}
    nested: dict[str, Any] = {}
    for path, value in flat.items():
        if value is None:
            continue
        *sections, leaf = path.split(".")
        table = nested
        for section in sections:
            table = table.setdefault(section, {})
        table[leaf] = value
    return spec_from(nested)


def job(**changes: Any) -> Job:
    """The job of `spec` on its own GPUs."""
    return spec(**changes).build()
