"""How many seconds does a byte take between GPUs, inside a host and across hosts?

All figures are seconds per byte at the nominal rate of the link; which share of it is reached, and how much hides
behind compute, is calibrated where the bytes are sent. The 0.8 of facts/data/training_speed.toml (`wire`) agrees with
NCCL's bus bandwidth at 512 MiB: 222 of 300 GB/s on A100, 445 of 450 on H100, 704 of 900 on B200.
"""

from __future__ import annotations

from dataclasses import dataclass

from headcount.facts.gpu import Gpu
from headcount.facts.link import Fabric

__all__ = [
    "Spread",
    "exchange",
    "gradient_wire",
    "hand_on",
    "handed_on",
    "link_gpus",
    "link_rate",
    "ring",
    "shard_wire",
]


@dataclass(frozen=True, kw_only=True, slots=True)
class Spread:
    """How a step is spread over GPUs: tensor ranks next to each other, then context, data and pipeline."""

    data: int = 1  # ranks that see different rows
    tensor: int = 1
    pipeline: int = 1
    virtual_pipeline: int = 1
    context: int = 1
    expert: int = 1
    sharded: bool = False  # weights are gathered for every micro-batch (ZeRO-3, FSDP); in a pipeline once a step
    gathers: int = 2  # all-gathers a micro-batch: forward, and backward where weights were freed
    micro_batches: int = 1  # of one rank in one optimizer step


def link_rate(gpu: Gpu, fabric: Fabric) -> float:
    """Bytes per second and direction between cards of one host: NVLink or xGMI, else PCIe, else the fabric."""
    return gpu.link_bytes_per_s or gpu.pcie_bytes_per_s or fabric.bytes_per_s


def link_gpus(gpu: Gpu) -> int:
    """GPUs under one fast link: a host, or a rack of NVL72."""
    return gpu.link_gpus or gpu.gpus_per_node


def ring(gpu: Gpu, fabric: Fabric, *, ranks: int, beside: int = 1) -> float:
    """All-gather or reduce-scatter over `ranks` GPUs that are `beside` places apart: (n − 1) ÷ n ÷ rate.

    Per byte of the whole (gathered) tensor; an all-reduce is one of each. Across hosts all members of a host send
    through their own ports: the ring is as fast as those together, and no faster than the link inside.
    """
    if ranks == 1:
        return 0.0
    rate = link_rate(gpu, fabric)
    if ranks * beside > link_gpus(gpu):
        rate = min(rate, fabric.bytes_per_s * max(1, link_gpus(gpu) // beside))
    return (ranks - 1) / ranks / rate


def hand_on(gpu: Gpu, fabric: Fabric, *, ranks: int) -> float:
    """From one GPU to its neighbour, in a group that takes `ranks` GPUs: through the fabric when it spans hosts."""
    return 1 / (link_rate(gpu, fabric) if ranks <= link_gpus(gpu) else fabric.bytes_per_s)


def exchange(gpu: Gpu, fabric: Fabric, *, ranks: int, beside: int = 1, copies: float = 1.0) -> tuple[float, float]:
    """All-to-all of a token's `copies` over `ranks` GPUs, per byte of all copies: (inside a host, to other hosts).

    Of H hosts a token visits H (1 − (1 − 1 ÷ H)^copies): it crosses the fabric once per host and is copied there
    (DeepEP and HybridEP; DeepSeek-V3, arXiv:2412.19437 §3.2.2). What leaves goes through each GPU's own port.
    """
    if ranks == 1:
        return 0.0, 0.0
    near = min(ranks, max(1, link_gpus(gpu) // beside))
    hosts = ranks / near
    away = (hosts - 1) * (1 - (1 - 1 / hosts) ** copies) / copies
    return (near - 1) / ranks / link_rate(gpu, fabric), away / fabric.bytes_per_s


def handed_on(gpu: Gpu, fabric: Fabric, spread: Spread) -> float:
    """Seconds a byte from stage to stage: each chunk receives and sends, forward and backward."""
    if spread.pipeline == 1:
        return 0.0
    ranks = spread.tensor * spread.pipeline * spread.context
    return 2 * spread.virtual_pipeline * hand_on(gpu, fabric, ranks=ranks)


def shard_wire(gpu: Gpu, fabric: Fabric, spread: Spread, held: float, gradient_bytes: float) -> float:
    """FSDP, one micro-batch: 16-bit weights gathered, gradients reduce-scattered.

    A pipeline keeps gathered weights until its step ends, or it would gather for every micro-batch in flight.
    """
    if not spread.sharded:
        return 0.0
    numbers = held / spread.tensor / spread.pipeline / (spread.micro_batches if spread.pipeline > 1 else 1)
    rate = ring(gpu, fabric, ranks=spread.data * spread.context, beside=spread.tensor)
    return rate * numbers * (2 * spread.gathers + gradient_bytes)


def gradient_wire(gpu: Gpu, fabric: Fabric, spread: Spread, numbers: float, gradient_bytes: float) -> float:
    """Once a step: gradients reduce-scattered, weights gathered (ZeRO-1); an all-reduce moves as much."""
    rate = ring(gpu, fabric, ranks=spread.data * spread.context, beside=spread.tensor)
    return rate * numbers / spread.tensor / spread.pipeline * (gradient_bytes + 2)
