"""Which measured constants do estimates use beside a card's peaks?"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

__all__ = ["Factor", "factor"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Factor:
    """A measured constant with its 80 % range."""

    p10: float
    p50: float
    p90: float
    source: str


@cache
def _rows() -> Mapping[str, Mapping[str, Mapping[str, object]]]:
    return tomllib.loads(files("headcount.facts.data").joinpath("calibration.toml").read_text("utf-8"))


def _factor(row: Mapping[str, object]) -> Factor:
    low, middle, high = (float(str(row[key])) for key in ("p10", "p50", "p90"))
    return Factor(p10=low, p50=middle, p90=high, source=str(row["source"]))


def factor(name: str) -> Factor:
    """One constant of calibration.toml's [factor] table."""
    return _factor(_rows()["factor"][name])
