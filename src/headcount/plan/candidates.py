"""Which ways are there to lay a job out on so many GPUs?

Three lists that multiply: how the trainer is spread (`layouts`), how large a forward is and what is kept of it
(`forwards`), how the engine stands beside it (`engines`). What the job states is never changed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import product

from headcount.job.job import EnginePlacement, Job
from headcount.job.layout import Shard
from headcount.job.load import Spec

__all__ = ["Grid", "Settings", "grids"]

Settings = Mapping[str, object]
Free = Callable[..., bool]  # are these keys left to us?

_MICRO_BATCHES = (1, 2, 4, 8, 16, 32, 64)
_FRACTIONS = (0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)
_MOST_STAGES = 16
_LONG_ROW = 4096  # tokens from which on a row is worth dividing over context ranks


@dataclass(frozen=True, kw_only=True, slots=True)
class Grid:
    """Settings to lay over a job: every layout × every forward × every engine is one candidate."""

    gpus: int  # all of them
    train_gpus: int
    layouts: tuple[Settings, ...]
    forwards: tuple[Settings, ...]
    engines: tuple[Settings, ...]

    @property
    def count(self) -> int:
        """How many candidates the grid stands for."""
        return len(self.layouts) * len(self.forwards) * len(self.engines)


def grids(spec: Spec, job: Job, gpus: int) -> Iterator[Grid]:
    """What may vary of `spec` on `gpus` GPUs, one grid a split; `job` is the same on any number, for its shapes."""

    def free(*keys: str) -> bool:
        return not any(key in spec.flat for key in keys)

    for train_gpus, engines in _splits(job, gpus, free):
        yield Grid(
            gpus=gpus,
            train_gpus=train_gpus,
            layouts=tuple(_layouts(job, train_gpus, free)),
            forwards=tuple(_forwards(job, free)),
            engines=engines,
        )


def _axis(key: str, values: Iterable[object], *, free: bool) -> list[Settings]:
    """One key's values; nothing to choose where the job states it."""
    return [{key: value} for value in values] if free else [{}]


def _merged(*axes: Iterable[Settings]) -> Iterator[dict[str, object]]:
    for parts in product(*axes):
        yield {key: value for part in parts for key, value in part.items()}


def _powers(most: int) -> list[int]:
    """1, 2, 4 … up to `most`."""
    return [1 << exponent for exponent in range(max(1, most).bit_length())]


# --- the trainer ---------------------------------------------------------------------------------------------------


def _layouts(job: Job, gpus: int, free: Free) -> Iterator[Settings]:
    node = min(gpus, job.layouts["train"].gpus_per_node)
    long = job.lengths.row_max >= _LONG_ROW
    return _merged(
        _shards(gpus, free),
        _tensors(node, free),
        _axis(
            "layout.pipeline",
            _powers(min(_MOST_STAGES, gpus, job.policy.shape.layers)),
            free=free("layout.pipeline", "layout.pipeline_micro_batches"),
        ),
        _axis("layout.context", _powers(node) if long else (1,), free=free("layout.context")),
        _axis("layout.expert", _powers(gpus), free=free("layout.expert") and job.policy.shape.moe),
        _axis("layout.offload_optimizer", (False, True), free=free("layout.offload_optimizer")),
    )


def _shards(gpus: int, free: Free) -> list[Settings]:
    if gpus == 1 or not free("layout.shard"):
        return [{}]
    kept = [{"layout.reshard_after_forward": False}] if free("layout.reshard_after_forward") else []
    fsdp: Settings = {"layout.shard": str(Shard.FSDP2)}
    return [fsdp, *({**fsdp, **more} for more in kept), *({"layout.shard": str(s)} for s in (Shard.ZERO1, Shard.DDP))]


def _tensors(node: int, free: Free) -> list[Settings]:
    """Tensor ranks inside a node, sequence parallel with them."""
    if not free("layout.tensor"):
        return [{}]
    beside: Settings = {"layout.sequence_parallel": True} if free("layout.sequence_parallel") else {}
    return [{"layout.tensor": ranks, **(beside if ranks > 1 else {})} for ranks in _powers(node)]


def _forwards(job: Job, free: Free) -> Iterator[Settings]:
    least = 2 if job.algorithm.pairs else 1
    sizes = [size for size in _MICRO_BATCHES if size >= least]
    sized = free("update.micro_batch_sequences", "update.micro_batch_tokens")
    kept = ("none", "selective", "full")
    return _merged(
        _axis("update.gradient_checkpointing", kept, free=free("update.gradient_checkpointing")),
        _axis("update.micro_batch_sequences", sizes, free=sized),
    )


# --- the engine ----------------------------------------------------------------------------------------------------


def _splits(job: Job, gpus: int, free: Free) -> Iterator[tuple[int, tuple[Settings, ...]]]:
    """(the trainer's GPUs, the engines beside it): colocated by its share of the card, apart by its share of GPUs."""
    engine = job.engine
    if engine is None or engine.placement is EnginePlacement.SHARED:
        yield gpus, ({},)
        return
    node = min(gpus, job.layouts["train"].gpus_per_node)
    ranks = _axis("rollout.engine_tensor", _powers(node), free=free("rollout.engine_tensor"))
    open_place = free("rollout.engine_placement", "rollout.sleep_level")
    if engine.placement is EnginePlacement.COLOCATED or open_place:
        place = _axis("rollout.engine_placement", ("colocated",), free=open_place)
        fractions = _axis("rollout.memory_fraction", _FRACTIONS, free=free("rollout.memory_fraction"))
        yield gpus, tuple(_merged(place, fractions, ranks))
    if engine.placement is EnginePlacement.SEPARATE or open_place:
        for apart in _shares(stated=_engine_gpus(job), gpus=gpus, free=free):
            place = {"rollout.engine_placement": "separate", "rollout.engine_gpus": apart}
            yield gpus - apart, tuple(_merged([place], ranks))


def _engine_gpus(job: Job) -> int:
    """GPUs of a separate engine; 0 where it has none of its own."""
    return job.layouts["rollout"].gpus if "rollout" in job.layouts else 0


def _shares(*, stated: int, gpus: int, free: Free) -> list[int]:
    """A quarter, a third, half, two thirds and three quarters of the GPUs; or as many as the job states."""
    if not free("rollout.engine_gpus"):
        return [stated] if stated < gpus else []
    parts = {gpus // 4, gpus // 3, gpus // 2, 2 * gpus // 3, 3 * gpus // 4}
    return sorted(part for part in parts if 0 < part < gpus)
