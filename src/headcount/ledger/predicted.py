"""What was said: predicted rows, the moments they are alive in, and the plan they add up to.

A phase's peak is its largest moment, the run's peak the largest phase. Predicted and observed rows join on
(phase, role, item).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from headcount.ledger.derivation import Derived
from headcount.vocabulary import Algorithm, Basis, Level, Phase, Role, Tier, Verdict

__all__ = [
    "Assumption",
    "Band",
    "Footprint",
    "Moment",
    "Plan",
    "Resident",
    "Row",
    "Seconds",
    "Stage",
    "largest",
]


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

    def together(self, other: Band) -> Band:
        """The sum of two quantities whose errors have one cause (the same efficiency): the widths add whole."""
        return Band(self.p10 + other.p10, self.p50 + other.p50, self.p90 + other.p90)

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
    allocator: bool = True  # False: not the trainer's tensors (CUDA context, NCCL, the engine's process)

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
        """Sum of the rows alive (p50), the engine's and the driver's included."""
        return sum(row.bytes for row in self.rows)

    @property
    def allocated_bytes(self) -> int:
        """What the trainer's caching allocator holds of them."""
        return sum(row.bytes for row in self.rows if row.allocator)

    @property
    def band(self) -> Band:
        """Rows' bands added in quadrature."""
        return sum((row.band for row in self.rows), start=Band.exactly(0))

    @property
    def allocated_band(self) -> Band:
        """The band of the allocator's rows."""
        return sum((row.band for row in self.rows if row.allocator), start=Band.exactly(0))

    @property
    def label(self) -> str:
        """`update/policy/logits`-like name of the instant."""
        return f"{self.phase}/{self.acting}/{self.name}" if self.acting else f"{self.phase}/{self.name}"


@dataclass(frozen=True, kw_only=True, slots=True)
class Resident:
    """One network of the headcount: who it is, what it keeps and whose weights it uses."""

    role: Role
    tier: Tier
    model: str
    parameters: int
    trained_parameters: int
    state_bytes: int  # weights, gradients, optimizer state of the whole network before any division
    group: str
    weights_of: Role | None = None
    note: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Assumption:
    """A setting that nobody stated: its value, why, and what the other plausible values would do to the peak."""

    key: str
    value: object
    text: str
    alternatives: tuple[tuple[object, int], ...] = ()  # (value, change of the peak in bytes)


@dataclass(frozen=True, kw_only=True, slots=True)
class Footprint:
    """The memory of one group of GPUs: every moment, the four levels at the peak, the verdict."""

    group: str
    gpus: int
    gpu: str
    layout: str  # in words
    moments: tuple[Moment, ...]
    host_moments: tuple[Moment, ...]  # bytes per node
    levels: Mapping[Level, Band]
    capacity_bytes: tuple[int, int]  # (safe, driver's figure): between them the verdict is uncertain
    host_capacity_bytes: int | None
    verdict: Verdict
    because: str

    @property
    def deciding(self) -> Moment:
        """The largest moment."""
        return largest(self.moments)

    @property
    def room_bytes(self) -> int:
        """What is left below the safe capacity at the device-used level; negative when it does not fit."""
        return self.capacity_bytes[0] - math.ceil(self.levels[Level.DEVICE_USED].p50)

    def peak_of(self, phase: Phase) -> Moment | None:
        """The largest moment of one phase, if the group is awake in it."""
        inside = [moment for moment in self.moments if moment.phase is phase]
        return largest(inside) if inside else None


@dataclass(frozen=True, kw_only=True, slots=True)
class Seconds:
    """A predicted time: band, formula with its numbers, basis."""

    name: str
    band: Band
    because: str
    basis: Basis
    refit: str = ""  # the user's own measurement: before, after, and what is now trusted


@dataclass(frozen=True, kw_only=True, slots=True)
class Stage:
    """One line of the pipeline: reward-model training, a cache pass, the alignment run. `step` adds up to one step."""

    name: str
    gpus: int
    steps: int
    step: tuple[Seconds, ...]  # by phase, of one step
    hours: Band
    dollars: Band | None  # None: no price is known for this GPU
    price_source: str = ""
    idle_gpu_hours: float = 0.0  # of a split: one side waits for the other
    energy_dollars: Band | None = None  # None: no price of energy was stated
    around: bool = False  # start-up, checkpoints, evaluations: around the stage that the job is about

    @property
    def gpu_hours(self) -> Band:
        """GPUs held × wall-clock."""
        return self.hours.scaled(self.gpus)

    @property
    def step_seconds(self) -> Band:
        """Wall-clock of one step."""
        return self.hours.scaled(3600 / self.steps)


@dataclass(frozen=True, kw_only=True, slots=True)
class Plan:
    """The answer to a job: who is resident, where the bytes peak, does it fit, how long, at what cost."""

    name: str
    algorithm: Algorithm
    model: str
    gpu: str
    headcount: tuple[Resident, ...]
    footprints: tuple[Footprint, ...]
    stages: tuple[Stage, ...]
    assumptions: tuple[Assumption, ...] = ()
    settings: tuple[tuple[str, object, str, str], ...] = ()  # key, value, origin, source text
    fixes: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    disk_bytes: tuple[Row, ...] = ()

    @property
    def tightest(self) -> Footprint:
        """The group of GPUs with the least room: it decides."""
        return min(self.footprints, key=lambda footprint: footprint.room_bytes)

    @property
    def verdict(self) -> Verdict:
        """The worst verdict of any group."""
        return max((footprint.verdict for footprint in self.footprints), key=lambda verdict: verdict.exit_code)

    @property
    def levels(self) -> Mapping[Level, Band]:
        """The four levels of the tightest group."""
        return self.tightest.levels

    @property
    def deciding(self) -> Moment:
        """The moment that decides: the largest of the tightest group."""
        return self.tightest.deciding

    @property
    def gpus(self) -> int:
        """GPUs held: all groups together."""
        return sum(footprint.gpus for footprint in self.footprints)

    @property
    def run(self) -> Stage | None:
        """The stage that the job is about, after one-time passes. None: no speed is known for the card."""
        return next((stage for stage in reversed(self.stages) if not stage.around and stage.gpus), None)

    def rows(self) -> Iterable[Row]:
        """Every distinct row of every group and moment, host rows included."""
        seen: set[tuple[str, str, int]] = set()
        for footprint in self.footprints:
            for moment in (*footprint.moments, *footprint.host_moments):
                for row in moment.rows:
                    mark = (footprint.group, row.key, row.bytes)
                    if mark not in seen:
                        seen.add(mark)
                        yield row


def largest(moments: Iterable[Moment]) -> Moment:
    """The moment with the most bytes."""
    return max(moments, key=lambda moment: moment.bytes)
