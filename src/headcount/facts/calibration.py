"""Which share of a card's peaks do real runs reach?"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

from headcount.errors import UnknownFact

__all__ = ["Factor", "Speed", "factor", "speed"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Factor:
    """A measured constant with its 80 % range."""

    p10: float
    p50: float
    p90: float
    source: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Speed:
    """Of one architecture: share of dense peak in training (mfu) and of peak bandwidth in decode (mbu)."""

    mfu: Factor
    mbu: Factor


@cache
def _rows() -> Mapping[str, Mapping[str, Mapping[str, object]]]:
    return tomllib.loads(files("headcount.facts.data").joinpath("calibration.toml").read_text("utf-8"))


def _factor(row: Mapping[str, object]) -> Factor:
    low, middle, high = (float(str(row[key])) for key in ("p10", "p50", "p90"))
    return Factor(p10=low, p50=middle, p90=high, source=str(row["source"]))


def factor(name: str) -> Factor:
    """One constant of calibration.toml's [factor] table."""
    return _factor(_rows()["factor"][name])


def speed(architecture: str) -> Speed:
    """Efficiencies of an architecture; refused when nobody measured one."""
    mfu, mbu = _rows()["mfu"], _rows()["mbu"]
    if architecture not in mfu or architecture not in mbu:
        known = ", ".join(sorted(set(mfu) & set(mbu)))
        raise UnknownFact.one(
            f"architecture {architecture}",
            f"no measured training or decode efficiency (known: {known})",
            "add mfu and mbu rows with a source to facts/data/calibration.toml",
        )
    return Speed(mfu=_factor(mfu[architecture]), mbu=_factor(mbu[architecture]))
