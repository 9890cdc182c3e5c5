"""How many seconds does one decode step take on one engine replica?

device = √(weights² + compute²) + cache + passes + layers · launch + collectives; host = fixed + requests · each;
step = √(device² + host²), since an engine schedules the next step while the device works on this one. There
weights = touched bytes ÷ (bandwidth · share), compute = FLOPs ÷ (peak · share), cache = live KV bytes ÷ (bandwidth ·
share), passes = element-wise kernels over the hidden states. Touched experts: E · (1 − (1 − k ÷ E)^B) for B tokens
with uniform routing. The shares and costs are calibrated (`facts/data/decode_speed.toml`, fitted by
scripts/fit_decode).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from math import log2
from typing import Any

from headcount.estimate.replica import Replica
from headcount.facts.decode_speed import DecodeSpeed
from headcount.facts.gpu import Gpu

__all__ = [
    "Decode", "Load", "decode_model", "exchange_s", "generate_model", "load_at", "prefill_at_peak_s", "prefill_seconds",
    "step_seconds", "wire_s",
]  # fmt: skip

# Of a link's rate in an all-reduce. PCIe: NCCL at 512 MiB, 24.7 of 63 GB/s (8 × RTX PRO 6000), 20.1 of 31.5 (2 × L40S).
_LINK_SHARE, _PCIE_SHARE = 0.95, 0.5
_HIDDEN_BYTES = 2  # activations between layers are 16-bit at every weight precision
_HOST_SPAN = 5.0  # latency of a collective that leaves the host, over one inside it


@dataclass(frozen=True, slots=True)
class Load:
    """One decode step's work on one GPU of one stage. Floats, or arrays of them: a fit evaluates many at once."""

    weights_s: Any  # touched bytes ÷ bandwidth
    compute_s: Any  # FLOPs ÷ peak
    cache_s: Any  # live cache bytes ÷ bandwidth
    hidden_s: Any  # bytes of the hidden states of all layers, once ÷ bandwidth
    layers: Any
    moe_layers: Any
    mla_layers: Any
    live: Any
    collectives: Any  # how many latencies: all-reduces × log2(ranks), more across hosts
    wire_s: Any  # bytes of all-reduces ÷ link
    exchange_s: Any  # bytes of the copies that go to experts on other ranks and back ÷ link
    stages: Any


def step_seconds(load: Load, speed: Any) -> Any:
    """One step of all stages, in turn; a round goes at the pace of its slowest stage and micro-batch."""
    weights, compute = load.weights_s / speed.weights, load.compute_s / speed.compute
    passes = load.hidden_s * speed.hidden_passes
    launch = load.layers * speed.layer_s + load.moe_layers * speed.moe_layer_s + load.mla_layers * speed.mla_layer_s
    wire = load.collectives * speed.collective_s + load.wire_s + load.exchange_s / speed.exchange
    device = (weights**2 + compute**2) ** 0.5 + load.cache_s / speed.cache + passes + launch + wire
    host = speed.step_s + load.live * speed.request_s
    waiting = 1 + speed.stage_wait * (load.stages - 1)
    return load.stages * waiting * (device**2 + host**2) ** 0.5


def load_at(replica: Replica, live: float, cached_tokens: float) -> Load:
    """The step of `live` sequences over `cached_tokens` tokens of context in all, spread over stages and ranks."""
    local = live / replica.attention_data / replica.pipeline  # sequences that one GPU works on at once
    context = cached_tokens / live
    routed = live / replica.pipeline
    reached = 1 - (1 - replica.active / replica.experts) ** routed if replica.experts else 0.0
    cache = local * (
        replica.full_cache_bytes * context + replica.window_cache_bytes * min(context, float(replica.window))
    )
    flops = local * (replica.flops_per_token + replica.attention_flops * context)
    bandwidth = replica.gpu.bandwidth()
    ranks = replica.tensor * replica.attention_data
    layers = replica.layers / replica.pipeline
    return Load(
        weights_s=(replica.dense_bytes + replica.expert_bytes * reached) / replica.pipeline / bandwidth,
        compute_s=flops / replica.pipeline / replica.peak,
        cache_s=cache / replica.pipeline / bandwidth,
        hidden_s=local * layers * replica.hidden * _HIDDEN_BYTES / bandwidth,
        layers=layers,
        moe_layers=replica.moe_layers / replica.pipeline,
        mla_layers=replica.mla_layers / replica.pipeline,
        live=local,
        collectives=replica.reduces / replica.pipeline * _latencies(replica.gpu, ranks),
        wire_s=wire_s(replica, routed) / replica.pipeline,
        exchange_s=exchange_s(replica, routed) / replica.pipeline,
        stages=replica.pipeline,
    )


def _latencies(gpu: Gpu, ranks: int) -> float:
    """log2(ranks) hops; three times the latency without a fast link, five times across hosts."""
    if ranks == 1:
        return 0.0
    slow = 1.0 if gpu.link_bytes_per_s else 3.0
    return log2(ranks) * slow * (_HOST_SPAN if ranks > gpu.gpus_per_node else 1.0)


def _link(gpu: Gpu) -> float:
    """Bytes per second and direction that an all-reduce gets; infinite where nothing is known and one card is used."""
    if gpu.link_bytes_per_s:
        return _LINK_SHARE * gpu.link_bytes_per_s
    return _PCIE_SHARE * gpu.pcie_bytes_per_s if gpu.pcie_bytes_per_s else float("inf")


def prefill_seconds(replica: Replica, tokens: float, row_tokens: float, speed: DecodeSpeed) -> float:
    """Prompts of `tokens` tokens in all, rows of `row_tokens`: FLOPs at the engine's compute share."""
    compute = prefill_at_peak_s(replica, tokens, row_tokens) / speed.prefill
    wire = wire_s(replica, tokens) + exchange_s(replica, tokens) / speed.exchange
    return compute + wire + tokens / row_tokens * speed.prefill_s


def prefill_at_peak_s(replica: Replica, tokens: float, row_tokens: float) -> float:
    """FLOPs of prompts over all peaks of a replica."""
    flops = tokens * (replica.flops_per_token + replica.attention_flops * row_tokens / 2)
    return flops / replica.attention_data / replica.pipeline / replica.peak


def wire_s(replica: Replica, tokens: float) -> float:
    """All-reduces over the tensor ranks: 2(t − 1) ÷ t of the hidden states on the wire, each."""
    sent = replica.reduces * 2 * (replica.tensor - 1) / replica.tensor * tokens * replica.hidden * _HIDDEN_BYTES
    return sent / replica.attention_data / _link(replica.gpu)


def exchange_s(replica: Replica, tokens: float) -> float:
    """Attention data parallelism sends k copies of each token to their experts' ranks and back: (r − 1) ÷ r of them."""
    ranks = replica.attention_data
    sent = 2 * replica.moe_layers * replica.active * (ranks - 1) / ranks * tokens * replica.hidden * _HIDDEN_BYTES
    return sent / ranks / _link(replica.gpu)


@dataclass(frozen=True, kw_only=True, slots=True)
class Decode:
    """One replica's decode: seconds of a step (fast, middle, slow) for a live batch over its cached tokens."""

    step_s: tuple[Callable[[float, float], float], Callable[[float, float], float], Callable[[float, float], float]]
    prefill_s: Callable[[float, float], float]
    spread: tuple[float, float]
    measured_spread: tuple[float, float]  # once `rescaled`
    because: str
    refit: str = ""  # the measurement that it went through

    def rescaled(self, factor: float, why: str) -> Decode:
        """The same model through one measurement: steps × factor, and the band that such rows leave."""
        low, high = self.measured_spread
        middle, prefill = self.step_s[1], self.prefill_s
        return Decode(
            step_s=(
                lambda live, cached: middle(live, cached) * factor * low,
                lambda live, cached: middle(live, cached) * factor,
                lambda live, cached: middle(live, cached) * factor * high,
            ),
            prefill_s=lambda tokens, row: prefill(tokens, row) * factor,
            spread=self.measured_spread,
            measured_spread=self.measured_spread,
            because=self.because,
            refit=why,
        )


def decode_model(replica: Replica, speed: DecodeSpeed, *, eager: bool = False) -> Decode:
    """The step of `replica` with its band; `eager` adds the host's cost of launching kernels one by one."""

    def step_s(live: float, cached_tokens: float) -> float:
        seconds = step_seconds(load_at(replica, live, cached_tokens), speed)
        return max(seconds, replica.layers * speed.eager_layer_s) if eager else seconds

    return _decode(replica, speed, step_s)


def generate_model(replica: Replica, speed: DecodeSpeed) -> Decode:
    """`generate` of transformers: eager, and every step copies the cache, expanded to all query heads."""
    copies = replica.expansion * speed.cache_copies

    def step_s(live: float, cached_tokens: float) -> float:
        load = load_at(replica, live, cached_tokens)
        seconds = step_seconds(replace(load, cache_s=load.cache_s * copies), speed)
        return max(seconds, replica.layers * speed.eager_layer_s)

    return _decode(replica, speed, step_s)


def _decode(replica: Replica, speed: DecodeSpeed, step_s: Callable[[float, float], float]) -> Decode:
    low, high = speed.spread
    return Decode(
        step_s=(
            lambda live, cached: step_s(live, cached) * low,
            step_s,
            lambda live, cached: step_s(live, cached) * high,
        ),
        prefill_s=lambda tokens, row: prefill_seconds(replica, tokens, row, speed),
        spread=speed.spread,
        measured_spread=speed.measured_spread,
        because=(
            f"weights ÷ ({replica.gpu.bandwidth() / 1e9:,.0f} GB/s × {speed.weights:.2f}), FLOPs ÷ "
            f"({replica.peak / 1e12:,.0f} TFLOP/s × {speed.compute:.2f}), cache, {replica.layers} layers of host cost"
        ),
    )
