"""How many seconds does one decode step take on one engine replica, and how many tokens a second does that make?

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
from functools import lru_cache
from math import log2
from typing import Any

from headcount.errors import UnknownFact
from headcount.estimate.kv_cache import layer_bytes_per_token
from headcount.estimate.parameters import Kind, block_tensors, root_tensors
from headcount.facts.decode_speed import DecodeSpeed
from headcount.facts.gpu import Gpu
from headcount.facts.model_shape import Attention, AttentionKind, Block, ModelShape, MoeMlp
from headcount.ledger.predicted import Band

__all__ = [
    "Decode", "Load", "Replica", "Serving", "concurrency_at_load", "decode_model", "generate_model", "load_at",
    "prefill_seconds", "replica_of", "serving_at", "serving_of", "serving_rate", "step_seconds", "tokens_per_s",
]  # fmt: skip

_BYTES = {"fp32": 4.0, "bf16": 2.0, "fp16": 2.0, "fp8": 1.0, "int4": 0.56, "fp4": 0.5625}
# Workspace and activations at the largest batch, context and NCCL (vLLM's profile run: 5.5 GiB dense, 8 GiB mixtures).
_RESERVE_BYTES = {False: 3.5e9, True: 8.6e9}
_CACHE_SHARE = 0.9  # of what is left, the engine's default share for the cache
# Of a link's rate in an all-reduce. PCIe: NCCL at 512 MiB, 24.7 of 63 GB/s (8 × RTX PRO 6000), 20.1 of 31.5 (2 × L40S).
_LINK_SHARE, _PCIE_SHARE = 0.95, 0.5
_HIDDEN_BYTES = 2  # activations between layers are 16-bit at every weight precision
_HOST_SPAN = 5.0  # latency of a collective that leaves the host, over one inside it


@dataclass(frozen=True, kw_only=True, slots=True)
class Replica:
    """One engine replica: what every GPU of it reads, multiplies and caches. Bytes and FLOPs are per GPU."""

    gpu: Gpu
    precision: str
    dense_bytes: float  # read by every step
    expert_bytes: float  # all experts together
    experts: int
    active: int
    flops_per_token: float  # linears, of one token of this GPU's batch
    attention_flops: float  # of one token, per token of its context
    full_cache_bytes: float  # of one cached token: layers that see everything
    window_cache_bytes: float  # layers that see a window
    window: int
    expansion: float  # the cache with keys and values for every query head, over the cache as it is kept
    layers: int
    moe_layers: int
    mla_layers: int
    hidden: int
    reduces: int  # all-reduces of a token through all layers
    tensor: int
    pipeline: int
    attention_data: int  # ranks that each decode their part of the batch (attention data-parallel, experts divided)
    peak: float
    total_weight_bytes: float  # of the whole replica

    @property
    def gpus(self) -> int:
        """GPUs of the replica."""
        return self.tensor * self.pipeline * self.attention_data


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
        wire_s=_wire_s(replica, routed) / replica.pipeline,
        exchange_s=_exchange_s(replica, routed) / replica.pipeline,
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
    compute = _prefill_at_peak_s(replica, tokens, row_tokens) / speed.prefill
    wire = _wire_s(replica, tokens) + _exchange_s(replica, tokens) / speed.exchange
    return compute + wire + tokens / row_tokens * speed.prefill_s


def _prefill_at_peak_s(replica: Replica, tokens: float, row_tokens: float) -> float:
    flops = tokens * (replica.flops_per_token + replica.attention_flops * row_tokens / 2)
    return flops / replica.attention_data / replica.pipeline / replica.peak


def _wire_s(replica: Replica, tokens: float) -> float:
    """All-reduces over the tensor ranks: 2(t − 1) ÷ t of the hidden states on the wire, each."""
    sent = replica.reduces * 2 * (replica.tensor - 1) / replica.tensor * tokens * replica.hidden * _HIDDEN_BYTES
    return sent / replica.attention_data / _link(replica.gpu)


def _exchange_s(replica: Replica, tokens: float) -> float:
    """Attention data parallelism sends k copies of each token to their experts' ranks and back: (r − 1) ÷ r of them."""
    ranks = replica.attention_data
    sent = 2 * replica.moe_layers * replica.active * (ranks - 1) / ranks * tokens * replica.hidden * _HIDDEN_BYTES
    return sent / ranks / _link(replica.gpu)


# --- what a replica is ---------------------------------------------------------------------------------------------


def replica_of(
    shape: ModelShape,
    gpu: Gpu,
    *,
    precision: str,
    kv_bytes: float,
    tensor: int = 1,
    pipeline: int = 1,
    attention_data: int = 1,
) -> Replica:
    """Divide a model over a replica's GPUs.

    Embedding rows are looked up, not read whole. 4-bit checkpoints of mixtures keep attention in 16 bits, and the
    vocabulary head is never quantised.

    Raises:
        UnknownFact: the card has no bandwidth, or no peak at this precision.
    """
    weight_bytes = _BYTES[precision]
    attention_bytes = 2.0 if precision == "fp4" and shape.moe else weight_bytes
    dense = flops = expert = 0.0
    for count, block in shape.blocks:
        inside, experts, attention = _split(block, shape.hidden)
        dense += count * (inside * weight_bytes + attention * attention_bytes)
        expert += count * experts * weight_bytes
        reached = block.mlp.active / block.mlp.experts if isinstance(block.mlp, MoeMlp) else 0.0
        flops += count * 2 * (inside + attention + experts * reached)
    head = _head_numbers(shape)
    mixtures = [(count, block.mlp) for count, block in shape.blocks if isinstance(block.mlp, MoeMlp)]
    full, windowed, window = _cache(shape, kv_bytes, tensor)
    return Replica(
        gpu=gpu,
        precision=precision,
        dense_bytes=(dense + 2 * head) / tensor,
        expert_bytes=expert / tensor / attention_data,
        experts=mixtures[-1][1].experts if mixtures else 0,
        active=mixtures[-1][1].active if mixtures else 0,
        flops_per_token=(flops + 2 * head) / tensor,
        attention_flops=sum(c * _score_flops(b.attention) for c, b in shape.blocks) / tensor,
        full_cache_bytes=full,
        window_cache_bytes=windowed,
        window=window,
        expansion=_expansion(shape),
        layers=shape.layers,
        moe_layers=sum(count for count, _ in mixtures),
        mla_layers=sum(c for c, b in shape.blocks if b.attention.kind is AttentionKind.MLA),
        hidden=shape.hidden,
        # Parallel blocks add both outputs before one all-reduce (vLLM model_executor/models/falcon.py).
        reduces=sum(count * (1 if block.parallel else 2) for count, block in shape.blocks),
        tensor=tensor,
        pipeline=pipeline,
        attention_data=attention_data,
        peak=_peak(gpu, precision),
        total_weight_bytes=(dense + 2 * head) * attention_data + expert + 2 * head,
    )


@lru_cache(maxsize=256)
def _split(block: Block, hidden: int) -> tuple[int, int, int]:
    """Numbers of one block: (MLP, router and norms; all experts; attention linears)."""
    attention = block.attention
    names = {attention.q_name, attention.k_name, attention.v_name, attention.qkv_name, attention.o_name}
    names |= {"q_a_proj", "q_b_proj", "kv_a_proj_with_mqa", "kv_b_proj"}
    inside = experts = heads = 0
    for tensor in block_tensors(block, hidden=hidden):
        if tensor.module.startswith("experts."):
            experts += tensor.numel
        elif tensor.module in names:
            heads += tensor.numel
        else:
            inside += tensor.numel
    return inside, experts, heads


def _head_numbers(shape: ModelShape) -> int:
    tensors = root_tensors(shape)
    head = sum(t.numel for t in tensors if t.kind is Kind.HEAD)
    return head or shape.vocab * shape.hidden  # a tied table is read as the head


def _score_flops(attention: Attention) -> float:
    """Scores and weighted values of one token against one cached token; MLA works on the latent for every head."""
    if attention.kind is AttentionKind.MLA:
        return 2 * attention.heads * (2 * attention.kv_lora_rank + attention.rope_head_dim)
    return 2 * attention.heads * (attention.head_dim + (attention.value_head_dim or attention.head_dim))


def _cache(shape: ModelShape, kv_bytes: float, tensor: int) -> tuple[float, float, int]:
    """(bytes a cached token in layers that see all, in windowed layers, the window)."""
    full = windowed = 0.0
    window = 0
    for count, block in shape.blocks:
        each = count * layer_bytes_per_token(block.attention, kv_bytes=kv_bytes, tensor=tensor)
        if block.attention.window:
            windowed, window = windowed + each, block.attention.window
        else:
            full += each
    return full, windowed, window


def _expansion(shape: ModelShape) -> float:
    """Query heads per key head; of a latent cache, all heads' keys and values over the latent."""
    kept = sum(count * layer_bytes_per_token(block.attention, kv_bytes=1) for count, block in shape.blocks)
    heads = [(count * b.attention.heads, b.attention) for count, b in shape.blocks]
    return sum(n * (each.head_dim + (each.value_head_dim or each.head_dim)) for n, each in heads) / kept


def _peak(gpu: Gpu, precision: str) -> float:
    """Dense peak of the units that multiply: 4-bit weights without 4-bit units run in 16 bits."""
    if precision == "int4" or (precision == "fp4" and "fp4" not in gpu.flops_per_s):
        precision = "bf16"
    if precision == "bf16" and "bf16" not in gpu.flops_per_s:
        precision = "fp16"
    if precision == "fp16" and "fp16" not in gpu.flops_per_s:
        precision = "bf16"
    return gpu.peak_flops_per_s(precision)


# --- rates ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Serving:
    """A list of equal requests and the waves in which a replica finishes them."""

    requests: Any
    output: Any  # tokens of each
    waves: tuple[tuple[Any, Load], ...]  # (how many, the step of one)
    prefill_s: Any  # of all prompts, at peak
    prefill_wire_s: Any
    prefill_exchange_s: Any


def tokens_per_s(serving: Serving, speed: Any) -> Any:
    """Output tokens a second: prefills are paid for out of the same time."""
    decode = sum(count * serving.output * step_seconds(load, speed) for count, load in serving.waves)
    wire = serving.prefill_wire_s + serving.prefill_exchange_s / speed.exchange
    prefill = serving.prefill_s / speed.prefill + wire + serving.requests * speed.prefill_s
    return serving.requests * serving.output / (decode + prefill)


def serving_rate(serving: Serving, speed: DecodeSpeed) -> Band:
    """Output tokens a second with their 80 % band: the fast step makes the high rate."""
    rate, (low, high) = float(tokens_per_s(serving, speed)), speed.spread
    return Band(rate / high, rate, rate / low)


def serving_at(replica: Replica, *, concurrency: int, prompt: float, output: float) -> Serving:
    """`concurrency` requests in flight: one that ends makes room for the next, so one wave stands for all."""
    load = load_at(replica, concurrency, concurrency * (prompt + output / 2))
    prefill = _prefill_at_peak_s(replica, concurrency * prompt, prompt)
    return Serving(
        requests=concurrency,
        output=output,
        waves=((1, load),),
        prefill_s=prefill,
        prefill_wire_s=_wire_s(replica, concurrency * prompt),
        prefill_exchange_s=_exchange_s(replica, concurrency * prompt),
    )


def serving_of(replica: Replica, *, requests: int, most: int, prompt: float, output: float) -> Serving:
    """All requests there from the start, as many at once as the cache holds: full waves and a last, partial one."""
    at_once = min(requests, concurrency_at_load(replica, tokens=prompt + output, most=most))
    full, rest = divmod(requests, at_once)
    waves = [(full, at_once), (1, rest)] if rest else [(full, at_once)]
    loads = tuple((count, load_at(replica, live, live * (prompt + output / 2))) for count, live in waves)
    prefill = _prefill_at_peak_s(replica, requests * prompt, prompt)
    return Serving(
        requests=requests,
        output=output,
        waves=loads,
        prefill_s=prefill,
        prefill_wire_s=_wire_s(replica, requests * prompt),
        prefill_exchange_s=_exchange_s(replica, requests * prompt),
    )


def concurrency_at_load(replica: Replica, *, tokens: float, most: int) -> int:
    """Sequences of `tokens` tokens that the replica's cache holds at once.

    Raises:
        UnknownFact: the weights leave no room for a single sequence.
    """
    room = (
        replica.gpus * (replica.gpu.capacity_bytes[1] - _RESERVE_BYTES[replica.moe_layers > 0])
        - replica.total_weight_bytes
    )
    one = replica.full_cache_bytes * tokens + replica.window_cache_bytes * min(tokens, replica.window)
    # Bytes on one tensor rank of all stages; ranks of attention data parallelism hold their own sequences.
    held = int(_CACHE_SHARE * max(0.0, room) / replica.tensor / one)
    if held < 1:
        where = f"{replica.gpus} × {replica.gpu.name}"
        raise UnknownFact.one(where, "the weights leave no room for a cache", "more GPUs")
    return min(held, most)


# --- what a planner asks -------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True, slots=True)
class Decode:
    """One replica's decode: seconds of a step (fast, middle, slow) for a live batch over its cached tokens."""

    step_s: tuple[Callable[[float, float], float], Callable[[float, float], float], Callable[[float, float], float]]
    prefill_s: Callable[[float, float], float]
    spread: tuple[float, float]
    measured_spread: tuple[float, float]  # once `rescaled`
    because: str

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
            because=f"{self.because}; {why}",
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
