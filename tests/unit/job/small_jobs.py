"""The jobs that these tests vary."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from headcount.job.job import Job
from headcount.job.load import spec_from

MODEL = "Qwen/Qwen2.5-7B-Instruct"


def built(algorithm: str, *, gpus: int = 8, **sections: Any) -> Job:
    """A job of one algorithm on H100s with sections laid over the least that a job must say."""
    return spec_from(mapping(algorithm, **sections)).build(gpus=gpus)


def mapping(algorithm: str, **sections: Any) -> Mapping[str, Any]:
    """The mapping that tomllib would give; `policy` and `hardware` keep their model and GPU."""
    least: dict[str, Any] = {"algorithm": algorithm, "policy": {"model": MODEL}, "hardware": {"gpu": "h100-sxm"}}
    for name, section in sections.items():
        least[name] = {**least[name], **section} if name in least and isinstance(section, dict) else section
    return least
