"""How many tokens a second does a replica serve: at a fixed concurrency, or a list of requests at full load?"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from headcount.errors import UnknownFact
from headcount.estimate.decode import Load, exchange_s, load_at, prefill_at_peak_s, step_seconds, wire_s
from headcount.estimate.replica import Replica
from headcount.facts.decode_speed import DecodeSpeed
from headcount.ledger.predicted import Band

__all__ = ["Serving", "concurrency_at_load", "serving_at", "serving_of", "serving_rate", "tokens_per_s"]

# Workspace and activations at the largest batch, context and NCCL (vLLM's profile run: 5.5 GiB dense, 8 GiB mixtures).
_RESERVE_BYTES = {False: 3.5e9, True: 8.6e9}
_CACHE_SHARE = 0.9  # of what is left, the engine's default share for the cache


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
    prefill = prefill_at_peak_s(replica, concurrency * prompt, prompt)
    return Serving(
        requests=concurrency,
        output=output,
        waves=((1, load),),
        prefill_s=prefill,
        prefill_wire_s=wire_s(replica, concurrency * prompt),
        prefill_exchange_s=exchange_s(replica, concurrency * prompt),
    )


def serving_of(replica: Replica, *, requests: int, most: int, prompt: float, output: float) -> Serving:
    """All requests there from the start, as many at once as the cache holds: full waves and a last, partial one."""
    at_once = min(requests, concurrency_at_load(replica, tokens=prompt + output, most=most))
    full, rest = divmod(requests, at_once)
    waves = [(full, at_once), (1, rest)] if rest else [(full, at_once)]
    loads = tuple((count, load_at(replica, live, live * (prompt + output / 2))) for count, live in waves)
    prefill = prefill_at_peak_s(replica, requests * prompt, prompt)
    return Serving(
        requests=requests,
        output=output,
        waves=loads,
        prefill_s=prefill,
        prefill_wire_s=wire_s(replica, requests * prompt),
        prefill_exchange_s=exchange_s(replica, requests * prompt),
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
