"""Which shares of a card's peaks does training reach?"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from math import exp
from typing import Any

from headcount.errors import UnknownFact

__all__ = ["FRAMEWORKS", "TrainingSpeed", "training_speed"]

FRAMEWORKS = ("hf", "fsdp-eager", "fsdp", "fsdp-async-tp", "megatron")
_NOW = 2026.5  # containers of mid-2026: what mixtures cost falls from release to release
_FIRST = 2025.0


@dataclass(frozen=True, kw_only=True, slots=True)
class TrainingSpeed:
    """Constants of one card architecture, precision and framework class, fitted together: read their products.

    `spread` multiplies a step's seconds into its 80 % band.
    """

    gemm: float  # share of dense peak of a large matrix product
    small: float  # how fast that share falls with small ones
    head: float  # share of 16-bit peak in the vocabulary head
    logit: float  # how often 2 bytes of every logit are read or written, forward and backward
    attention: float  # share of 16-bit peak in attention
    element: float  # hidden-sized tensors read and written a layer, element by element
    cast: float  # the same for casts to 8 or 4 bits
    launch_s: float  # the host's time for a layer's kernels, forward and backward
    hook_s: float  # what gathering weights adds to it (ZeRO-3)
    unpack_s: float  # what 4-bit weights add to it
    sync_s: float  # the host's wait for a mixture's routing, a layer
    route_s: float  # the host's time for the kernels of one local expert
    ahead: float  # exponent: 1 adds the host's time to the device's, infinity hides the shorter
    optimizer: float  # share of bandwidth in the optimizer's step
    wire: float  # share of link rate in gathers of weights
    overlap: float  # exponent: 1 adds gathers to compute, infinity hides the shorter
    hop_s: float  # latency of one hop of a tensor-parallel collective
    tensor_beside: float  # exponent: tensor ranks' transfers beside products; 1 where the trainer hides none
    context_exposed: float
    stage_exposed: float
    gradient_exposed: float
    near_exposed: float
    far_exposed: float
    bubble: float
    expert: float  # grouped products over plain ones
    permute: float  # copies of a routed token read and written
    step_s: float
    spread: tuple[float, float]
    source: str


@cache
def _rows() -> Mapping[str, Any]:
    return tomllib.loads(files("headcount.facts.data").joinpath("training_speed.toml").read_text("utf-8"))


@cache
def training_speed(
    architecture: str, precision: str, framework: str, *, mixture: bool, release: float = _NOW, measured: bool = True
) -> TrainingSpeed:
    """The constants for one kind of trainer; `release` is the year of its libraries.

    Not `measured`: a trainer of the kind that wrote none of the rows has the band of rows whose trainer was left out.

    Raises:
        UnknownFact: nobody measured this architecture at this precision.
    """
    rows = _rows()
    card = rows["architecture"].get(architecture, {})
    if precision not in card:
        known = ", ".join(
            f"{name} {kind}" for name, each in rows["architecture"].items() for kind in each if kind in _KINDS
        )
        raise UnknownFact.one(
            f"training on {architecture} at {precision}",
            f"nobody measured it (known: {known})",
            "add its row with a source to facts/data/training_speed.toml",
        )
    trainer, common = rows["framework"][framework], dict(rows["all"])
    from_first = max(0.0, release - _FIRST)
    fade, route_fade = common.pop("fade"), common.pop("route_fade")
    low, high = rows["spread"][_segment(framework, mixture=mixture, measured=measured)]
    assumed = card.get("assumed") or card.get("assumed_kinds", {}).get(precision)
    if assumed:
        low, high = low**2, high**2  # twice as wide in the logarithm
    common["permute"] *= exp(-fade * from_first)
    for name in ("route_s", "sync_s"):
        common[name] *= exp(-route_fade * from_first)
    return TrainingSpeed(
        gemm=card[precision] * trainer["pace"],
        attention=card["attention"] * trainer["kernel"],
        expert=card["expert"],
        element=trainer["element"],
        launch_s=trainer["launch_s"],
        hook_s=trainer["hook_s"],
        unpack_s=trainer["unpack_s"],
        tensor_beside=trainer["tensor_beside"],
        spread=(low, high),
        source=assumed or rows["source"],
        **common,
    )


def _segment(framework: str, *, mixture: bool, measured: bool) -> str:
    """Which rows' spread stands for this trainer."""
    if mixture:
        return "megatron-mixture"
    if not measured and framework != "hf":
        return "another-trainer"
    return {"megatron": "megatron-dense", "hf": "hf"}.get(framework, "fsdp")


_KINDS = ("bf16", "fp16", "fp8", "fp8-rowwise", "fp4")
