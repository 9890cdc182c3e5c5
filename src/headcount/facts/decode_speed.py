"""Which shares of a card's peaks does decoding reach, and what does the host add?"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

from headcount.errors import UnknownFact

__all__ = ["DecodeSpeed", "decode_speed"]


@dataclass(frozen=True, kw_only=True, slots=True)
class DecodeSpeed:
    """Constants of one card architecture, weight precision and engine, fitted together: read their products.

    `spread` multiplies a step's seconds into its 80 % band.
    """

    weights: float  # share of bandwidth while weights are read
    cache: float  # share of bandwidth while the cache is read
    compute: float  # share of dense peak in a decode step
    prefill: float  # share of dense peak in a prefill
    layer_s: float
    hidden_passes: float  # element-wise reads and writes of the hidden states in a layer
    moe_layer_s: float
    mla_layer_s: float
    step_s: float
    request_s: float  # per running request and step
    prefill_s: float  # per prefill, beside its FLOPs
    collective_s: float  # latency of one hop of a collective
    exchange: float  # share of a link's rate when tokens go to experts on other ranks: sorting, the busiest rank
    stage_wait: float  # share of a round lost for every pipeline stage beyond the first
    eager_layer_s: float  # a layer launched kernel by kernel
    cache_copies: float  # of the expanded cache, a step of transformers' generate
    spread: tuple[float, float]
    measured_spread: tuple[float, float]  # when one rate of the same replica was measured
    source: str


@cache
def _rows() -> Mapping[str, Any]:
    return tomllib.loads(files("headcount.facts.data").joinpath("decode_speed.toml").read_text("utf-8"))


@cache
def decode_speed(architecture: str, precision: str, engine: str, *, mixture: bool) -> DecodeSpeed:
    """The constants for one kind of replica.

    Raises:
        UnknownFact: nobody measured this architecture at this precision, or this engine.
    """
    rows = _rows()
    card = rows["architecture"].get(architecture, {})
    shares, host = card.get(precision), rows["engine"].get(engine)
    if shares is None:
        known = ", ".join(
            f"{name} {key}" for name, each in rows["architecture"].items() for key in each if key in _KINDS
        )
        raise UnknownFact.one(
            f"decode on {architecture} at {precision}",
            f"nobody measured it (known: {known})",
            "add its row with a source to facts/data/decode_speed.toml, or state [rollout.throughput]",
        )
    if host is None:
        raise UnknownFact.one(
            f"engine {engine}", f"no measured host cost (known: {', '.join(rows['engine'])})", "add its row"
        )
    pace, model = card["host"], rows["model"]
    low, high = rows["spread"]["mixture" if mixture else "dense"]
    if "assumed" in shares:
        low, high = low**2, high**2  # twice as wide in the logarithm
    local_low, local_high = rows["spread"]["measured_mixture" if mixture else "measured_dense"]
    return DecodeSpeed(
        weights=shares["weights"],
        cache=card["cache"],
        compute=shares["compute"] * (model["mixture_compute"] if mixture else 1.0),
        prefill=shares["prefill"],
        layer_s=host["layer_s"] * pace,
        hidden_passes=model["hidden_passes"],
        moe_layer_s=model["moe_layer_s"] * pace,
        mla_layer_s=model["mla_layer_s"] * pace,
        step_s=host["step_s"] * pace,
        request_s=host["request_s"] * pace,
        prefill_s=host["prefill_s"] * pace,
        collective_s=model["collective_s"],
        exchange=model["exchange"],
        stage_wait=model["stage_wait"],
        eager_layer_s=model["eager_layer_s"],
        cache_copies=model["cache_copies"],
        spread=(low, high),
        measured_spread=(local_low, local_high),
        source=shares.get("assumed", rows["source"]),
    )


_KINDS = ("bf16", "fp16", "fp8", "fp4", "int4")
