"""How many bytes does one parameter cost, trained or frozen?"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

from headcount.errors import UnknownFact, nearest

__all__ = [
    "FrozenPrecision", "PrecisionPolicy", "find_frozen_precision", "find_precision", "frozen_precisions", "precisions",
]  # fmt: skip


@dataclass(frozen=True, kw_only=True, slots=True)
class PrecisionPolicy:
    """Bytes per trainable parameter, by part. `total_bytes` with AdamW is the number in the name."""

    name: str
    weight_bytes: int  # stored
    gradient_bytes: int  # stored
    master_bytes: int  # separate fp32 copy; 0 when the stored weights are the master
    moment_bytes: int  # per moment; AdamW has two
    compute_bytes: int  # the dtype the linears run in
    reduce_bytes: int  # gradients on the wire
    autocast: bool  # fp32 weights, cast per linear
    cast_copy_bytes: int  # transient 16-bit copy of every weight, counted as weights in "hf-18"
    meaning: str
    source: str

    @property
    def total_bytes(self) -> int:
        """Bytes per parameter under AdamW."""
        return (
            self.weight_bytes + self.cast_copy_bytes + self.gradient_bytes + self.master_bytes + 2 * self.moment_bytes
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class FrozenPrecision:
    """Bytes per frozen parameter. Quantised formats hold the linears; the rest stays at `other_bytes`."""

    name: str
    weight_bytes: float
    other_bytes: int  # embedding, head, norms
    quantised: bool
    keeps_input: bool  # bitsandbytes linears keep their input although frozen
    source: str


@cache
def _rows() -> Mapping[str, Any]:
    return tomllib.loads(files("headcount.facts.data").joinpath("precisions.toml").read_text("utf-8"))


@cache
def precisions() -> Mapping[str, PrecisionPolicy]:
    """Every named policy."""
    return {name: PrecisionPolicy(name=name, **row) for name, row in _rows()["trainable"].items()}


@cache
def frozen_precisions() -> Mapping[str, FrozenPrecision]:
    """Every named frozen format."""
    return {name: FrozenPrecision(name=name, **row) for name, row in _rows()["frozen"].items()}


def find_precision(name: str) -> PrecisionPolicy:
    """A trainable precision policy by name; UnknownFact names the nearest."""
    return _find(name, precisions(), "precision")


def find_frozen_precision(name: str) -> FrozenPrecision:
    """A frozen format by name; UnknownFact names the nearest."""
    return _find(name, frozen_precisions(), "base_precision")


def _find(name: str, known: Mapping[str, Any], where: str) -> Any:
    if name in known:
        return known[name]
    raise UnknownFact.one(
        where, f"{name!r} is not a known format. {nearest(name, known)}", f"one of {', '.join(known)}"
    )
