"""What was said: predicted rows, the moments they are alive in, and the plan they add up to.

A phase's peak is its largest moment, the run's peak the largest phase. Predicted and observed rows join on
(phase, role, item).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from headcount.ledger.derivation import Derived
from headcount.vocabulary import Basis, Level, Phase, Role, Verdict

__all__ = ["Band", "Moment", "Quantity", "Row", "Step", "Verdicts"]


@dataclass(frozen=True, slots=True)
class Band:
    """An 80 % band: one time in ten below `p10`, one in ten above `p90`."""

    p10: float
    p50: float
    p90: float

    def __add__(self, other: Band) -> Band:
        # Independent errors: the half-widths add in quadrature, not in a row.
        p50 = self.p50 + other.p50
        return Band(
            p50 - math.hypot(self.p50 - self.p10, other.p50 - other.p10),
            p50,
            p50 + math.hypot(self.p90 - self.p50, other.p90 - other.p50),
        )

    def scaled(self, factor: float) -> Band:
        """The band of `factor` times the quantity."""
        return Band(self.p10 * factor, self.p50 * factor, self.p90 * factor)

    @classmethod
    def exactly(cls, value: float) -> Band:
        """No spread."""
        return cls(value, value, value)


@dataclass(frozen=True, kw_only=True, slots=True)
class Row:
    """Bytes of one item of one role, per GPU (or per node, for host rows), with the formula that made them.

    `role` is None for what belongs to no network (CUDA context, NCCL). `shrinks_with` names the layout degrees that
    divide the row; an empty tuple marks a row that no number of GPUs shrinks. `reads` are the job keys that feed it,
    so that every assumed setting can be printed beside the rows it moves. `spread` multiplies the bytes into a band.
    """

    phase: Phase
    role: Role | None
    item: str
    amount: Derived
    basis: Basis = Basis.EXACT
    spread: tuple[float, float] = (1.0, 1.0)
    shrinks_with: tuple[str, ...] = ()
    reads: tuple[str, ...] = ()
    terms: tuple[tuple[str, Derived], ...] = ()
    note: str = ""

    @property
    def bytes(self) -> int:
        """The p50 bytes."""
        return self.amount.bytes

    @property
    def key(self) -> str:
        """`update/policy/logits`: how a person names the row."""
        return f"{self.phase}/{self.role or 'gpu'}/{self.item.replace(' ', '-')}"

    @property
    def band(self) -> Band:
        """The row's 80 % band, from its basis alone (assumed settings widen the plan's total, not the row's)."""
        return Band(self.bytes * self.spread[0], self.bytes, self.bytes * self.spread[1])


@dataclass(frozen=True, kw_only=True, slots=True)
class Moment:
    """An instant inside a phase: the rows alive at it. `acting` is the role at work (None: nobody computes)."""

    phase: Phase
    name: str
    acting: Role | None
    rows: tuple[Row, ...]

    @property
    def bytes(self) -> int:
        """Sum of the rows alive (p50): the allocated level."""
        return sum(row.bytes for row in self.rows)

    @property
    def band(self) -> Band:
        """Rows' bands added in quadrature."""
        return sum((row.band for row in self.rows), start=Band.exactly(0))

    @property
    def label(self) -> str:
        """`update/policy/logits`-like name of the instant."""
        return f"{self.phase}/{self.acting}/{self.name}" if self.acting else f"{self.phase}/{self.name}"


@dataclass(frozen=True, kw_only=True, slots=True)
class Quantity:
    """A predicted number that is not bytes (seconds, dollars, tokens per second): band, unit, formula, basis."""

    name: str
    unit: str
    band: Band
    because: str
    basis: Basis


@dataclass(frozen=True, kw_only=True, slots=True)
class Step:
    """Seconds of one step by phase, and what a run of them costs."""

    phases: Mapping[Phase, Quantity]
    step_s: Band
    steps: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Verdicts:
    """Does it fit, judged on device-used bytes of the largest moment against the card's usable capacity."""

    verdict: Verdict
    levels: Mapping[Level, Band]
    capacity_low_bytes: int
    capacity_high_bytes: int
    deciding: Moment
    because: str
    assumptions: tuple[str, ...] = field(default=())


def peak(moments: Iterable[Moment]) -> Moment:
    """The largest moment."""
    return max(moments, key=lambda moment: moment.bytes)
