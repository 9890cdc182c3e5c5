"""Which engine generates, with how many GPUs a replica, and what share of the card?"""

from __future__ import annotations

from headcount.facts.gpu import Gpu
from headcount.facts.model_shape import ModelShape
from headcount.job.job import Engine, EnginePlacement, Origin, Source
from headcount.job.layout import Layout
from headcount.job.settings import Settings
from headcount.job.throughput import throughput_of

__all__ = ["engine_of"]

_BYTES = {"bf16": 2.0, "fp8": 1.0, "int4": 0.56, "fp4": 0.5625}  # 4 bits and their scales
_SEPARATE_SHARE = 0.9
_WEIGHTS_SHARE = 0.6  # of the engine's share: the rest is left to cache and workspace


def engine_of(settings: Settings, shape: ModelShape, gpu: Gpu, train: Layout) -> tuple[Engine, Layout | None]:
    """The engine, and the layout of its own GPUs when it is separate."""
    name = settings.get("rollout.engine")
    throughput = throughput_of(settings.flat)
    if name in ("builtin", "hf"):
        engine = Engine(
            name=name,
            placement=EnginePlacement(
                settings.get("rollout.engine_placement", "shared")
                if settings.given("rollout.engine_placement")
                else "shared"
            ),
            tensor=train.tensor,
            max_sequences=int(settings.get("rollout.max_sequences")),
            kv_bytes=int(_BYTES[settings.get("rollout.kv_precision")]),
            shared_prefill=bool(settings.get("rollout.shared_prefill")) if name == "builtin" else False,
            gathers_whole=bool(settings.get("rollout.gathers_whole")),
            throughput=throughput,
        )
        return engine, None
    placement = EnginePlacement(settings.get("rollout.engine_placement"))
    separate = placement is EnginePlacement.SEPARATE
    gpus = train.gpus
    if separate:
        gpus = int(settings.get("rollout.engine_gpus", train.gpus, "as many as train"))
    fraction = _memory_fraction(settings, separate=separate)
    precision = str(settings.get("rollout.engine_precision"))
    weight_bytes = _BYTES[precision]
    usual = _tensor_ranks(shape, gpu, gpus, fraction, weight_bytes)
    why = f"fewest ranks whose weights take at most {_WEIGHTS_SHARE:.0%} of the engine's share"
    tensor = int(settings.get("rollout.engine_tensor", usual, why))
    if not settings.given("rollout.engine_tensor") and gpus % tensor:
        tensor = usual  # a recipe's own default that these GPUs cannot make
        settings.sources["rollout.engine_tensor"] = Source(origin=Origin.DEFAULT, text=why, value=usual)
    engine = Engine(
        name=name,
        placement=placement,
        tensor=tensor,
        pipeline=int(settings.get("rollout.engine_pipeline", 1)),
        expert=int(settings.get("rollout.engine_expert", 1)),
        memory_fraction=fraction,
        sleep_level=0 if separate else int(settings.get("rollout.sleep_level")),
        max_sequences=int(settings.get("rollout.max_sequences")),
        precision=precision,
        weight_bytes=weight_bytes,
        kv_bytes=int(_BYTES[settings.get("rollout.kv_precision")]),
        eager=bool(settings.get("rollout.eager")),
        shared_prefill=bool(settings.get("rollout.shared_prefill")),
        whole_model_sync=bool(settings.get("rollout.whole_model_sync")),
        staleness=int(settings.get("rollout.staleness", 0)) if separate else 0,
        throughput=throughput,
        group="rollout" if separate else "train",
    )
    return engine, Layout(gpus=gpus, gpus_per_node=train.gpus_per_node) if separate else None


def _memory_fraction(settings: Settings, *, separate: bool) -> float:
    """A recipe's share is for an engine beside a trainer unless it says apart; on its own GPUs one takes nearly all."""
    key = "rollout.memory_fraction"
    if not separate or settings.given(key) or settings.recipe_means(key, "placement"):
        return float(settings.get(key))
    settings.sources[key] = Source(
        origin=Origin.DEFAULT, text="vLLM's default on GPUs of its own", value=_SEPARATE_SHARE
    )
    return _SEPARATE_SHARE


def _tensor_ranks(shape: ModelShape, gpu: Gpu, gpus: int, fraction: float, weight_bytes: float) -> int:
    """The smallest power of two that divides heads and GPUs and leaves room for the cache."""
    heads = shape.block(0).attention.heads
    room = (gpu.reported_bytes or gpu.marketed_bytes) * fraction * _WEIGHTS_SHARE
    ranks = 1
    while rough_parameters(shape) * weight_bytes / ranks > room and not (gpus % (2 * ranks) or heads % (2 * ranks)):
        ranks *= 2
    return ranks


def rough_parameters(shape: ModelShape) -> float:
    """Parameters from widths alone, biases and norms left out: enough to choose a power of two."""
    total = shape.vocab * shape.hidden * (1 if shape.tied else 2)
    for count, block in shape.blocks:
        attention, mlp = block.attention, block.mlp
        width = attention.q_width + attention.kv_width + attention.v_width + attention.o_width
        experts = getattr(mlp, "experts", 1)
        total += count * shape.hidden * (width + 3 * mlp.width * experts + 3 * getattr(mlp, "shared_width", 0))
    return float(total)
