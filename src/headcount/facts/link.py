"""How fast do bytes leave a host?"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

from headcount.errors import UnknownFact, nearest

__all__ = ["Fabric", "fabrics", "find_fabric", "usual_fabric"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Fabric:
    """A network between hosts: bytes per second and direction of one GPU's share, seconds of one message."""

    id: str
    name: str
    bytes_per_s: float
    latency_s: float
    source: str
    date: str


@cache
def _rows() -> Mapping[str, Any]:
    return tomllib.loads(files("headcount.facts.data").joinpath("links.toml").read_text("utf-8"))


@cache
def fabrics() -> Mapping[str, Fabric]:
    """Every fabric of links.toml by id."""
    return {
        key: Fabric(
            id=key,
            name=row["name"],
            bytes_per_s=row["gb_per_s"] * 1e9,
            latency_s=row["latency_us"] * 1e-6,
            source=row["source"],
            date=str(row["date"]),
        )
        for key, row in _rows().items()
        if key != "usual"
    }


def find_fabric(name: str) -> Fabric:
    """A fabric by its id; refused when unknown."""
    known = fabrics()
    if name in known:
        return known[name]
    what = f"{name!r} is not in the table. {nearest(name, known)}".strip()
    raise UnknownFact.one("fabric", what, f"one of {', '.join(known)}; or add a row to facts/data/links.toml")


def usual_fabric(architecture: str) -> Fabric:
    """What hosts with such cards are usually sold with."""
    usual = _rows()["usual"]
    if architecture not in usual:
        known = ", ".join(usual)
        raise UnknownFact.one(
            f"network of {architecture} hosts", f"not known (known: {known})", f'fabric = "{next(iter(fabrics()))}"'
        )
    return find_fabric(usual[architecture])
