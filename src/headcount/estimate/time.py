"""How do measured factors make a time with its band; how long do weights take to the engine and the host?"""

from __future__ import annotations

from headcount.estimate.parameters import parameters
from headcount.facts.calibration import Factor, factor
from headcount.facts.model_shape import ModelShape
from headcount.ledger.predicted import Band

__all__ = ["scaled", "sync_s", "times", "wake_s"]


def times(value: float, *factors: Factor, inverse: bool = False) -> Band:
    """value × (or ÷) factors, as a band; a larger efficiency makes a shorter time, so p10 and p90 change places."""
    band = Band.exactly(value)
    for each in factors:
        low, high = (1 / each.p90, 1 / each.p10) if inverse else (each.p10, each.p90)
        middle = 1 / each.p50 if inverse else each.p50
        spread_low = (1 - band.p10 / band.p50) ** 2 + (1 - low / middle) ** 2
        spread_high = (band.p90 / band.p50 - 1) ** 2 + (high / middle - 1) ** 2
        p50 = band.p50 * middle
        band = Band(p50 * max(0.0, 1 - spread_low**0.5), p50, p50 * (1 + spread_high**0.5))
    return band


def scaled(band: Band, by: Factor) -> Band:
    """The band of a factor times a quantity: relative widths in quadrature."""
    low = ((1 - band.p10 / band.p50) ** 2 + (1 - by.p10 / by.p50) ** 2) ** 0.5
    high = ((band.p90 / band.p50 - 1) ** 2 + (by.p90 / by.p50 - 1) ** 2) ** 0.5
    p50 = band.p50 * by.p50
    return Band(p50 * max(0.0, 1 - low), p50, p50 * (1 + high))


def sync_s(shape: ModelShape) -> Band:
    """Weights from trainer to engine: 0.06 s per billion parameters."""
    return times(parameters(shape) / 1e9, factor("sync-seconds-per-billion"))


def wake_s(moved_bytes: float) -> Band:
    """Bytes that go to the host and back between phases, per GPU."""
    return times(2 * moved_bytes, factor("wake-bytes-per-second"), inverse=True) if moved_bytes else Band.exactly(0)
