"""How many seconds does each piece of a step take on one kind of GPU?

First estimates by mechanism with stated bands: FLOPs over a measured share of dense peak, bytes over a measured share
of bandwidth, host costs per layer and request.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from headcount.estimate.flops import forward_flops, update_flops
from headcount.estimate.kv_cache import layer_bytes_per_token
from headcount.estimate.parameters import active_parameters, parameters
from headcount.facts.calibration import Factor, factor, speed
from headcount.facts.gpu import Gpu
from headcount.facts.model_shape import ModelShape, MoeMlp
from headcount.ledger.predicted import Band

__all__ = ["Decode", "compute_dtype", "decode_model", "forward_s", "sync_s", "times", "update_s", "wake_s"]


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


def compute_dtype(gpu: Gpu) -> str:
    """BF16 where the card has it, else FP16 (V100, T4)."""
    return "bf16" if "bf16" in gpu.flops_per_s else "fp16"


def update_s(
    shape: ModelShape,
    gpu: Gpu,
    *,
    tokens: float,
    row_tokens: float,
    gpus: int,
    full: bool = True,
    recompute: bool = True,
    scalar_head: bool = False,
    online: bool = False,
) -> Band:
    """Forward and backward of `tokens` tokens over `gpus` GPUs."""
    forward = forward_flops(shape, tokens=tokens, row_tokens=row_tokens, scalar_head=scalar_head)
    work = update_flops(forward, full=full, recompute=recompute).value
    ideal = work / (gpus * gpu.peak_flops_per_s(compute_dtype(gpu)))
    band = times(ideal, speed(gpu.architecture).mfu, inverse=True)
    return _scaled(band, factor("rl-update")) if online else band


def forward_s(
    shape: ModelShape, gpu: Gpu, *, tokens: float, row_tokens: float, gpus: int, scalar_head: bool = False
) -> Band:
    """A pass without gradient: its FLOPs, at the lower efficiency that log-prob passes reach."""
    work = forward_flops(shape, tokens=tokens, row_tokens=row_tokens, scalar_head=scalar_head).value
    ideal = work / (gpus * gpu.peak_flops_per_s(compute_dtype(gpu)))
    return _scaled(times(ideal, speed(gpu.architecture).mfu, inverse=True), factor("no-grad-pass"))


def _scaled(band: Band, by: Factor) -> Band:
    low = ((1 - band.p10 / band.p50) ** 2 + (1 - by.p10 / by.p50) ** 2) ** 0.5
    high = ((band.p90 / band.p50 - 1) ** 2 + (by.p90 / by.p50 - 1) ** 2) ** 0.5
    p50 = band.p50 * by.p50
    return Band(p50 * max(0.0, 1 - low), p50, p50 * (1 + high))


@dataclass(frozen=True, kw_only=True, slots=True)
class Decode:
    """Seconds of one decode step for a live batch on one replica, fast, middle and slow; prefill seconds per token."""

    step_s: tuple[Callable[[float, float], float], Callable[[float, float], float], Callable[[float, float], float]]
    because: str


def decode_model(
    shape: ModelShape,
    gpu: Gpu,
    *,
    tensor: int,
    weight_bytes: float,
    kv_bytes: float,
    eager: bool = False,
) -> Decode:
    """step = max(weights ÷ (t·BW·mbu), FLOPs ÷ (t·peak·e)) + cache ÷ (t·BW·mbu) + L·host + B·request."""
    bandwidth, peak = gpu.bandwidth() * tensor, gpu.peak_flops_per_s(compute_dtype(gpu)) * tensor
    mbu, compute = speed(gpu.architecture).mbu, factor("decode-compute")
    layer = factor("eager-layer-seconds" if eager else "layer-seconds")
    request = factor("request-seconds")
    cache = sum(
        count * layer_bytes_per_token(block.attention, kv_bytes=kv_bytes, tensor=tensor) * tensor
        for count, block in shape.blocks
    )
    active = active_parameters(shape)

    def made(mbu_at: float, compute_at: float, layer_at: float, request_at: float) -> Callable[[float, float], float]:
        def step(live: float, live_tokens: float) -> float:
            read = touched_parameters(shape, live) * weight_bytes / (bandwidth * mbu_at)
            work = 2 * active * live / (peak * compute_at)
            kv = live_tokens * cache / (bandwidth * mbu_at)
            return max(read, work) + kv + shape.layers * layer_at + live * request_at

        return step

    return Decode(
        step_s=(
            made(mbu.p90, compute.p90, layer.p10, request.p10),
            made(mbu.p50, compute.p50, layer.p50, request.p50),
            made(mbu.p10, compute.p10, layer.p90, request.p90),
        ),
        because=f"weights ÷ ({tensor} × {gpu.bandwidth() / 1e9:,.0f} GB/s × {mbu.p50:g}) + cache + host costs",
    )


def touched_parameters(shape: ModelShape, live: float) -> float:
    """Weights that a decode step reads: of experts those that any of `live` tokens reaches, E·(1 − (1 − k/E)^B)."""
    idle = 0.0
    for count, block in shape.blocks:
        if isinstance(block.mlp, MoeMlp):
            mlp = block.mlp
            each = 3 * mlp.width * shape.hidden
            idle += count * each * mlp.experts * (1 - mlp.active / mlp.experts) ** live
    looked_up = 0 if shape.tied else shape.vocab * shape.hidden
    return parameters(shape) - looked_up - idle


def sync_s(shape: ModelShape) -> Band:
    """Weights from trainer to engine: 0.06 s per billion parameters."""
    return times(parameters(shape) / 1e9, factor("sync-seconds-per-billion"))


def wake_s(moved_bytes: float) -> Band:
    """Bytes that go to the host and back between phases, per GPU."""
    return times(2 * moved_bytes, factor("wake-bytes-per-second"), inverse=True) if moved_bytes else Band.exactly(0)
