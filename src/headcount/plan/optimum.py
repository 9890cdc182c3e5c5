"""Of all ways to lay a job out, which fits and is fastest, or cheapest?

Every candidate is timed; the fastest are then held against the card, in order, until enough of them fit. What is
passed over is counted by its reason: a layout that cannot be, model state that alone is too large, a forward larger
than a rank's share of the step, memory, or simply slower than what was found.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum

from headcount.errors import InputError
from headcount.job.assemble import accumulates
from headcount.job.job import Checkpointing, EnginePlacement, Job, Origin
from headcount.job.load import Spec
from headcount.ledger.predicted import Band
from headcount.plan.candidates import Grid, Settings, grids
from headcount.plan.footprint import tightness
from headcount.plan.planner import plan
from headcount.plan.schedule import stages
from headcount.plan.state_rows import gradient_row, resting_rows
from headcount.plan.step_time import between_rows, generate_rows, seconds_of, step_seconds, train_rows
from headcount.vocabulary import Phase, Verdict

__all__ = ["Choice", "Objective", "Searched", "search"]


class Objective(StrEnum):
    """What is wanted of a layout that fits."""

    FASTEST = "fastest"
    CHEAPEST = "cheapest"


@dataclass(frozen=True, kw_only=True, slots=True)
class Choice:
    """One layout: the settings that make it, its bytes against the card, its time and its price."""

    gpu: str
    gpus: int
    train_gpus: int
    settings: Settings
    layout: str
    need: Band  # bytes a GPU at the worst moment
    verdict: Verdict
    deciding: str
    step_s: float
    hours: Band
    dollars: Band | None
    idle_gpu_hours: float = 0.0

    @property
    def gpu_hours(self) -> float:
        """GPUs × hours."""
        return self.gpus * self.hours.p50


@dataclass(frozen=True, kw_only=True, slots=True)
class Searched:
    """The best first, the trade-offs between GPUs, hours and money, and why the rest was passed over."""

    best: tuple[Choice, ...]
    front: tuple[Choice, ...]
    nearest: Choice | None  # of those that do not fit: the least over
    candidates: int
    rejected: Mapping[str, int]
    fixes: tuple[str, ...] = ()  # where nothing fits: single changes of the nearest miss

    @property
    def chosen(self) -> Choice | None:
        """The winner."""
        return self.best[0] if self.best else None


@dataclass(slots=True)
class _Tally:
    """What a search has seen so far."""

    candidates: int = 0
    rejected: Counter[str] = field(default_factory=Counter[str])
    nearest: Choice | None = None
    least_state: tuple[float, Spec, Grid, Settings] | None = None  # where not even the model state fits

    def too_large(self, state_bytes: float, spec: Spec, grid: Grid, layout: Settings) -> None:
        """Remember the layout whose model state is the least."""
        if self.least_state is None or state_bytes < self.least_state[0]:
            self.least_state = state_bytes, spec, grid, layout

    def over(self, choice: Choice) -> None:
        """Remember the candidate that misses by the least."""
        if self.nearest is None or choice.need.p50 < self.nearest.need.p50:
            self.nearest = choice


@dataclass(frozen=True, slots=True)
class _Timed:
    """A candidate that may be, with the seconds of one step."""

    step_s: float
    grid: Grid
    layout: Settings
    forward: Settings
    engine: Settings

    @property
    def settings(self) -> dict[str, object]:
        return {**self.layout, **self.forward, **self.engine}


def search(
    specs: Sequence[Spec],
    *,
    gpus: Sequence[int],
    objective: Objective = Objective.FASTEST,
    deadline_hours: float | None = None,
    budget_usd: float | None = None,
    keep: int = 5,
) -> Searched:
    """The best layouts of a job: one spec a kind of card, each on every count of `gpus`.

    Raises:
        InputError: the job itself is wrong, on every count.
    """
    tally = _Tally()
    found: list[Choice] = []
    for spec in specs:
        for count in gpus:
            found += _on(spec, count, keep, tally)
    if not found and tally.nearest is None and tally.least_state is not None:
        _least_over(tally, *tally.least_state[1:])
    within = [choice for choice in found if _within(choice, deadline_hours, budget_usd)]
    tally.rejected["over the deadline or the budget"] += len(found) - len(within)
    best = sorted(within, key=lambda choice: _order(choice, objective))
    return Searched(
        best=tuple(best[:keep]),
        front=tuple(_front(found)),
        nearest=tally.nearest,
        candidates=tally.candidates,
        rejected={reason: count for reason, count in tally.rejected.most_common() if count},
        fixes=() if found or tally.nearest is None else _fixes(specs, tally.nearest),
    )


def _least_over(tally: _Tally, spec: Spec, grid: Grid, layout: Settings) -> None:
    """Which forward of a layout misses by the least?"""
    for forward in grid.forwards:
        try:
            job = _laid_over(spec, {**layout, **forward, **grid.engines[0]}).build(gpus=grid.train_gpus)
        except InputError:
            continue
        step_s = seconds_of(step_seconds(job)).p50
        tally.over(_held(job, _Timed(step_s, grid, layout, forward, grid.engines[0]))[0])


def _fixes(specs: Sequence[Spec], nearest: Choice) -> tuple[str, ...]:
    """What `plan` would change about the nearest miss."""
    spec = next(spec for spec in specs if spec.build(gpus=spec.gpus_per_node).gpu.id == nearest.gpu)
    return plan(_laid_over(spec, nearest.settings).build(gpus=nearest.train_gpus)).fixes


def _within(choice: Choice, deadline_hours: float | None, budget_usd: float | None) -> bool:
    in_time = deadline_hours is None or choice.hours.p50 <= deadline_hours
    return in_time and (budget_usd is None or (choice.dollars is not None and choice.dollars.p50 <= budget_usd))


def _order(choice: Choice, objective: Objective) -> tuple[float, float]:
    """Hours, then GPU-hours; or money (GPU-hours where no price is known), then hours."""
    if objective is Objective.FASTEST:
        return choice.hours.p50, choice.gpu_hours
    return choice.dollars.p50 if choice.dollars else choice.gpu_hours, choice.hours.p50


def _front(choices: Iterable[Choice]) -> Iterator[Choice]:
    """Pareto: no other choice is at most as many GPUs, hours and dollars, and better in one."""
    kept = {id(choice): _costs(choice) for choice in choices}
    for choice in sorted(choices, key=lambda choice: (choice.gpus, choice.hours.p50)):
        mine = kept[id(choice)]
        if not any(other != mine and all(a <= b for a, b in zip(other, mine, strict=True)) for other in kept.values()):
            yield choice


def _costs(choice: Choice) -> tuple[float, float, float]:
    return choice.gpus, choice.hours.p50, choice.dollars.p50 if choice.dollars else choice.gpu_hours


# --- one kind of card, one count: time ----------------------------------------------------------------------------


def _on(spec: Spec, gpus: int, keep: int, tally: _Tally) -> list[Choice]:
    timed: list[_Timed] = []
    for grid in grids(spec, _any_job(spec, gpus), gpus):
        tally.candidates += grid.count
        timed += _timed(spec, grid, tally)
    timed.sort(key=lambda candidate: candidate.step_s)
    return _first_that_fit(spec, timed, keep, tally)


def _any_job(spec: Spec, gpus: int) -> Job:
    """The job on this count or, where its own layout cannot be there, on a node."""
    try:
        return spec.build(gpus=gpus)
    except InputError:
        return spec.build(gpus=spec.gpus or spec.gpus_per_node)


def _laid_over(spec: Spec, settings: Settings) -> Spec:
    """The job with settings that the grid made: sound by construction, so their types are not checked again."""
    return replace(spec, flat={**spec.flat, **settings})


def _timed(spec: Spec, grid: Grid, tally: _Tally) -> Iterator[_Timed]:
    """Every candidate of a grid that can be, with its step time."""
    beside: list[_Beside] | None = None
    for layout in grid.layouts:
        try:
            base = _laid_over(spec, {**layout, **grid.engines[0]}).build(gpus=grid.train_gpus)
        except InputError as error:
            tally.rejected[_reason(error)] += len(grid.forwards) * len(grid.engines)
            continue
        state_bytes = _state_bytes(base)
        if state_bytes > base.gpu.capacity_bytes[1]:
            tally.too_large(state_bytes, spec, grid, layout)
            tally.rejected["model state alone is larger than the card"] += len(grid.forwards) * len(grid.engines)
            continue
        if beside is None or _generates_in_place(base):
            beside = list(_engines(spec, grid, layout))
        tally.rejected["the engine's ranks do not divide its GPUs or heads"] += len(grid.forwards) * (
            len(grid.engines) - len(beside)
        )
        for forward in grid.forwards:
            job = _with_forward(base, forward)
            if job is None:
                tally.rejected["the micro-batch is larger than a rank's share of the step"] += len(beside)
                continue
            train_s = seconds_of(train_rows(job)).p50
            for each in beside:
                hidden_s = min(train_s, each.generate_s) if each.staleness else 0.0
                step_s = each.generate_s + train_s + each.between_s - hidden_s
                yield _Timed(step_s, grid, layout, forward, each.settings)


@dataclass(frozen=True, slots=True)
class _Beside:
    """An engine with its own seconds: what it generates in, and what both sides wait for."""

    settings: Settings
    generate_s: float
    between_s: float
    staleness: int


def _generates_in_place(job: Job) -> bool:
    """With the policy's own weights the trainer's layout is the engine's too."""
    return job.engine is not None and job.engine.placement is EnginePlacement.SHARED


def _engines(spec: Spec, grid: Grid, layout: Settings) -> Iterator[_Beside]:
    for engine in grid.engines:
        try:
            job = _laid_over(spec, {**layout, **engine}).build(gpus=grid.train_gpus)
        except InputError:
            continue
        generate_s, between_s = (seconds_of(rows(job)).p50 for rows in (generate_rows, between_rows))
        yield _Beside(engine, generate_s, between_s, job.engine.staleness if job.engine else 0)


def _with_forward(job: Job, forward: Settings) -> Job | None:
    """The job with another micro-batch and checkpointing, as a build would make it; None where a rank has fewer rows.

    A build costs ten times as much, and a search asks for tens of thousands.
    """
    sequences = int(str(forward.get("update.micro_batch_sequences", job.update.sequences)))
    layout = job.layouts["train"]
    rows = job.work.mini_batch_rows * job.work.group_size * (2 if job.algorithm.pairs else 1)
    if "update.micro_batch_sequences" in forward and sequences > max(1, rows // max(1, layout.data)):
        return None
    update = replace(job.update, sequences=sequences)
    kept = forward.get("update.gradient_checkpointing")
    accumulate = job.sources["update.accumulate"].origin is Origin.DEFAULT
    kernels = replace(
        job.kernels,
        checkpointing=Checkpointing(str(kept)) if kept else job.kernels.checkpointing,
        accumulate=accumulates(job.work, layout, update, job.algorithm) if accumulate else job.kernels.accumulate,
    )
    return replace(job, update=update, score=update if job.score is job.update else job.score, kernels=kernels)


def _state_bytes(job: Job) -> float:
    """Weights, gradients and optimizer state that rest on the GPU during the update."""
    rows = resting_rows(job, "train", Phase.UPDATE)
    trained = [network for network in job.networks.values() if network.trainable and network.group == "train"]
    standing = [
        gradient_row(network, job.layouts["train"]) for network in trained if not job.kernels.optimizer_in_backward
    ]
    return sum(row.bytes for row in rows) + max((row.bytes for row in standing), default=0)


def _reason(error: InputError) -> str:
    """`layout.tensor` out of `job: layout.tensor`: mistakes are counted by the key that they are about."""
    where = error.mistakes[0].where.rpartition(": ")[2]
    return f"cannot be: {where}"


# --- memory --------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Limits:
    """What memory has already said of a layout, so that one answer serves every candidate that it decides.

    The update's peak grows with the micro-batch and does not know the engine's share; generation's peak grows with
    that share and does not know the micro-batch.
    """

    micro_batch: dict[tuple[int, str, int], int] = field(default_factory=dict[tuple[int, str, int], int])
    share: dict[tuple[int, object], float] = field(default_factory=dict[tuple[int, object], float])

    def known_to_fail(self, timed: _Timed) -> bool:
        """Is an easier candidate of the same layout known to fail?"""
        too_many = self.micro_batch.get(_forward_key(timed))
        too_much = self.share.get(_engine_key(timed))
        return (too_many is not None and _sequences(timed) >= too_many) or (
            too_much is not None and _fraction(timed) >= too_much
        )

    def learn(self, timed: _Timed, phase: Phase) -> None:
        """This candidate failed in this phase."""
        if phase in (Phase.GENERATE, Phase.EVAL):
            self.share[_engine_key(timed)] = _fraction(timed)
        elif phase in (Phase.UPDATE, Phase.SCORE, Phase.CACHE):
            self.micro_batch[_forward_key(timed)] = _sequences(timed)


def _forward_key(timed: _Timed) -> tuple[int, str, int]:
    return id(timed.layout), str(timed.forward.get("update.gradient_checkpointing")), id(timed.grid)


def _engine_key(timed: _Timed) -> tuple[int, object]:
    return id(timed.layout), timed.engine.get("rollout.engine_tensor")


def _sequences(timed: _Timed) -> int:
    return int(str(timed.forward.get("update.micro_batch_sequences", 1)))


def _fraction(timed: _Timed) -> float:
    return float(str(timed.engine.get("rollout.memory_fraction", 1.0)))


def _first_that_fit(spec: Spec, timed: Sequence[_Timed], keep: int, tally: _Tally) -> list[Choice]:
    """The fastest `keep` candidates that fit, of different layouts; `timed` is in order of time."""
    limits, found, kept = _Limits(), list[Choice](), set[tuple[int, int]]()
    for place, candidate in enumerate(timed):
        if len(found) == keep:
            tally.rejected["slower than what was found"] += len(timed) - place
            break
        if (id(candidate.layout), id(candidate.grid)) in kept:
            tally.rejected["a slower micro-batch or engine share of a layout that is kept"] += 1
            continue
        if limits.known_to_fail(candidate):
            tally.rejected[_NO_ROOM] += 1
            continue
        try:
            job = _laid_over(spec, candidate.settings).build(gpus=candidate.grid.train_gpus)
        except InputError as error:
            tally.rejected[_reason(error)] += 1
            continue
        choice, phase = _held(job, candidate)
        if choice.verdict is Verdict.FITS:
            found.append(choice)
            kept.add((id(candidate.layout), id(candidate.grid)))
        else:
            limits.learn(candidate, phase)
            tally.rejected[_NO_ROOM] += 1
            tally.over(choice)
    return found


_NO_ROOM = "does not fit, or not surely"


def _held(job: Job, candidate: _Timed) -> tuple[Choice, Phase]:
    """The candidate against the card: the worst group of GPUs decides."""
    verdict, need, worst = max(
        (tightness(job, group) for group in job.layouts), key=lambda each: (each[0].exit_code, each[1].p50)
    )
    run = next(stage for stage in reversed(stages(job)) if not stage.around and stage.gpus)
    choice = Choice(
        gpu=job.gpu.id,
        gpus=job.gpus,
        train_gpus=candidate.grid.train_gpus,
        settings=candidate.settings,
        layout="; ".join(layout.text for layout in job.layouts.values()),
        need=need,
        verdict=verdict,
        deciding=worst.label,
        step_s=candidate.step_s,
        hours=run.hours,
        dollars=run.dollars,
        idle_gpu_hours=run.idle_gpu_hours,
    )
    return choice, worst.phase
