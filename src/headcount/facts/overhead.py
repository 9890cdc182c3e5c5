"""What takes GPU memory although no tensor of ours holds it?"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

from headcount.units import GIB

__all__ = ["Overhead", "overheads"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Overhead:
    """An 80 % range and the middle of one fixed cost, in bytes."""

    name: str
    low_bytes: int
    typical_bytes: int
    high_bytes: int
    meaning: str
    source: str
    date: str

    @property
    def spread(self) -> tuple[float, float]:
        """Low and high as multiples of the middle."""
        return self.low_bytes / self.typical_bytes, self.high_bytes / self.typical_bytes


@cache
def overheads() -> Mapping[str, Overhead]:
    """Every row of overheads.toml by name."""
    rows = tomllib.loads(files("headcount.facts.data").joinpath("overheads.toml").read_text("utf-8"))
    return {
        name: Overhead(
            name=name,
            low_bytes=round(row["low_gib"] * GIB),
            typical_bytes=round(row["typical_gib"] * GIB),
            high_bytes=round(row["high_gib"] * GIB),
            meaning=row["meaning"],
            source=row["source"],
            date=str(row["date"]),
        )
        for name, row in rows.items()
    }
