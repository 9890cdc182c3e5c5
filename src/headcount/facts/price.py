"""What does an hour of one GPU cost, where, and since when?"""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

__all__ = ["Price", "find_price", "prices"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Price:
    """A dated list price in dollars per GPU-hour; `instance_gpus` are rented together."""

    gpu: str
    provider: str
    region: str
    instance: str
    instance_gpus: int
    on_demand_usd: float
    source: str
    date: str
    spot_usd: float | None = None

    @property
    def label(self) -> str:
        """`$2.95 per GPU-hour, nebius (unstated), per GPU, on demand, read 2026-08-23`."""
        return f"${self.on_demand_usd:.2f} per GPU-hour, {self.provider} {self.instance}, on demand, read {self.date}"


@cache
def prices() -> tuple[Price, ...]:
    """Every row of prices.toml."""
    rows = tomllib.loads(files("headcount.facts.data").joinpath("prices.toml").read_text("utf-8"))["price"]
    return tuple(Price(**(row | {"date": str(row["date"])})) for row in rows)


def find_price(gpu: str, *, gpus: int = 1) -> Price | None:
    """The median on-demand row among the offers that leave the fewest GPUs idle; None: no price is made up."""

    def idle(row: Price) -> int:
        return -gpus % row.instance_gpus

    rows = sorted((row for row in prices() if row.gpu == gpu), key=lambda row: row.on_demand_usd)
    least = min(map(idle, rows), default=0)
    best = [row for row in rows if idle(row) == least]
    return best[(len(best) - 1) // 2] if best else None
