"""What does an optimizer keep per parameter, and what does its step allocate on top?"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

from headcount.errors import UnknownFact, nearest

__all__ = ["Optimizer", "find_optimizer", "optimizers"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Optimizer:
    """`moment_bytes` None: as the precision policy says. Temporaries are in copies of the stored parameters."""

    name: str
    moments: float  # states per parameter; Adafactor's factored second moment is ~0
    moment_bytes: float | None = None
    step_copies: float  # temporaries of the step in parameter copies (foreach)
    step_largest: float  # temporaries in copies of the largest tensor (for-loop)
    paged: bool  # states in unified memory: they can leave the GPU under pressure
    source: str


@cache
def optimizers() -> Mapping[str, Optimizer]:
    """Every optimizer of optimizers.toml."""
    rows = tomllib.loads(files("headcount.facts.data").joinpath("optimizers.toml").read_text("utf-8"))
    return {name: Optimizer(name=name, **row) for name, row in rows.items()}


def find_optimizer(name: str) -> Optimizer:
    """An optimizer by name; UnknownFact names the nearest."""
    if name in optimizers():
        return optimizers()[name]
    raise UnknownFact.one(
        "optimizer", f"{name!r} is not known. {nearest(name, optimizers())}", f"one of {', '.join(optimizers())}"
    )
