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

    def usd(self, *, spot: bool = False) -> float:
        """Dollars per GPU-hour; a spot price only where the row has one."""
        return self.spot_usd if spot and self.spot_usd is not None else self.on_demand_usd

    def label(self, *, spot: bool = False) -> str:
        """`$6.88 per GPU-hour, aws p5.48xlarge us-east-1, on demand, 8 GPUs an instance, read 2026-08-23`."""
        kind = "spot" if spot else "on demand"
        whole = f", {self.instance_gpus} GPUs an instance" if self.instance_gpus > 1 else ""
        where = f"{self.provider} {self.instance} {self.region}"
        return f"${self.usd(spot=spot):.2f} per GPU-hour, {where}, {kind}{whole}, read {self.date}"


@cache
def prices() -> tuple[Price, ...]:
    """Every row of prices.toml."""
    rows = tomllib.loads(files("headcount.facts.data").joinpath("prices.toml").read_text("utf-8"))["price"]
    return tuple(Price(**(row | {"date": str(row["date"])})) for row in rows)


def find_price(gpu: str, *, gpus: int = 1, provider: str | None = None, spot: bool = False) -> Price | None:
    """The median row among the offers that leave the fewest GPUs idle; None: no price is made up."""

    def idle(row: Price) -> int:
        return -gpus % row.instance_gpus

    offers = [row for row in prices() if row.gpu == gpu and provider in (None, row.provider)]
    rows = sorted((row for row in offers if not spot or row.spot_usd is not None), key=lambda row: row.usd(spot=spot))
    least = min(map(idle, rows), default=0)
    best = [row for row in rows if idle(row) == least]
    return best[(len(best) - 1) // 2] if best else None
