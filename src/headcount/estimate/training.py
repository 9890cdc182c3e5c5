"""How long does one optimizer step of training take on a layout?

A micro-batch is the sum of what its kernels do: matrix products at a share of peak that falls when they are small,
attention at its own share, element-wise traffic at a share of bandwidth, launches, the tensor-parallel wire, experts.
FSDP's gathers run beside it. Pipelines add the bubble; the step adds gradient exchange and the optimizer. The shares
are calibrated (`facts/data/training_speed.toml`, fitted by scripts/fit_training).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from math import log2
from typing import Any

from headcount.estimate.parameters import block_tensors, parameters
from headcount.facts.gpu import Gpu
from headcount.facts.link import Fabric
from headcount.facts.model_shape import Attention, Block, DenseMlp, ModelShape, MoeMlp

__all__ = [
    "Passes",
    "Spread",
    "Training",
    "forward_seconds",
    "micro_seconds",
    "passes_of",
    "step_seconds",
    "training_of",
]

# Backward over forward: matrix products 2 (1 without weight gradients), attention 2.5 (FlashAttention recomputes
# scores), element-wise 1.3.
_ATTENTION_BACKWARD, _ELEMENT_BACKWARD = 2.5, 1.3
# Mean bytes of a product's three operands: 8- and 4-bit inputs, 16-bit output.
_OPERAND_BYTES = {"bf16": 2.0, "fp16": 2.0, "fp8": 4 / 3, "fp4": 1.0}
_BYTES = {"bf16": 2, "fp16": 2, "fp8": 1, "fp4": 1, "fp32": 4}


@dataclass(frozen=True, kw_only=True, slots=True)
class Spread:
    """How a step is spread over GPUs. `hosts_of_*` tell whether a group fits under one fast link."""

    data: int = 1  # ranks that see different rows
    tensor: int = 1
    pipeline: int = 1
    virtual_pipeline: int = 1
    context: int = 1
    expert: int = 1
    sharded: bool = False  # weights are gathered for every micro-batch (ZeRO-3, FSDP)
    gathers: int = 2  # all-gathers a micro-batch: forward, and backward where weights were freed
    micro_batches: int = 1  # of one rank in one optimizer step


@dataclass(frozen=True, kw_only=True, slots=True)
class Passes:
    """What runs: backward products over forward ones, and how much of the forward is repeated."""

    backward: float = 2.0  # 1 for LoRA; 0 for a pass without gradient
    recompute: float = 0.0  # 1 with full checkpointing


@dataclass(frozen=True, slots=True)
class Training:
    """One micro-batch on one GPU, and what a step adds: seconds at peak. Floats, or arrays of them in a fit."""

    gemm_s: Any  # forward products of blocks ÷ peak
    small: Any  # 1/T + 1/h + tensor/f: how small they are
    ratio: Any  # peak ÷ bandwidth, FLOP a byte
    head_s: Any  # forward product of the vocabulary head ÷ 16-bit peak
    attention_s: Any  # forward scores ÷ 16-bit peak
    element_s: Any  # tokens × hidden × 2 bytes × layers ÷ bandwidth
    cast_s: Any  # the same where inputs are cast to 8 or 4 bits; 0 else
    expert_s: Any  # forward products of routed experts ÷ peak
    expert_small: Any
    permute_s: Any  # bytes of tokens sent to their experts and back ÷ bandwidth
    near_s: Any  # the same ÷ link, to experts on the same host
    far_s: Any  # the same ÷ fabric, to experts on other hosts
    layers: Any  # of one stage
    local_experts: Any  # of all layers of one stage: each is launched on its own
    tensor_hops: Any  # latencies of tensor-parallel collectives, forward, backward and gradient gathers
    tensor_wire_s: Any  # all-gathers and reduce-scatters of the hidden states ÷ link
    context_wire_s: Any
    stage_wire_s: Any  # hidden states handed from stage to stage, every chunk, there and back ÷ fabric
    shard_wire_s: Any  # gathers and reduce-scatters of weights of one micro-batch ÷ link
    gradient_wire_s: Any  # once a step
    optimizer_s: Any  # bytes of state ÷ bandwidth
    backward: Any
    recompute: Any
    micro_batches: Any
    bubble: Any  # (stages − 1) ÷ (micro-batches × chunks)
    dequantise_s: Any  # bytes of 4-bit weights unpacked a pass ÷ bandwidth


def _efficiency(small: Any, ratio: Any, speed: Any) -> Any:
    """s ÷ (s + s0 · peak ÷ bandwidth), 1 ÷ s = 1 ÷ T + 1 ÷ h + t ÷ f: a small product is bound by its bytes."""
    return speed.gemm / (1 + speed.small * ratio * small)


def micro_parts(work: Training, speed: Any) -> dict[str, Any]:
    """Forward and backward of one micro-batch on one stage, by what takes the time; `gathers` run beside the rest."""
    products = 1 + work.backward + work.recompute
    elements = 1 + _ELEMENT_BACKWARD * _trains(work) + work.recompute
    return {
        "matrix products": work.gemm_s * products / _efficiency(work.small, work.ratio, speed),
        "vocabulary head": work.head_s * (1 + work.backward) / speed.head,
        "attention": work.attention_s * _attention_passes(work) / speed.attention,
        "element-wise": (work.element_s * speed.element + work.cast_s * speed.cast) * elements,
        "launches": work.layers * speed.launch_s * (1 + _trains(work) + work.recompute) / 3,
        "experts": _expert_seconds(work, speed, products),
        "dequantisation": work.dequantise_s * products,
        "wires": (work.tensor_wire_s * speed.tensor_exposed + work.tensor_hops * speed.hop_s) * products / 3
        + work.context_wire_s * speed.context_exposed
        + work.stage_wire_s * speed.stage_exposed,
        "gathers": work.shard_wire_s / speed.wire,
    }


def micro_seconds(work: Training, speed: Any) -> Any:
    """The parts one after the other, gathers of weights beside them."""
    parts = micro_parts(work, speed)
    gathered = parts.pop("gathers")
    compute = sum(parts.values())
    return (compute**speed.overlap + gathered**speed.overlap) ** (1 / speed.overlap)


def _trains(work: Training) -> Any:
    """1 with a backward, 0 without."""
    return (work.backward > 0) * 1.0


def _attention_passes(work: Training) -> Any:
    return 1 + _ATTENTION_BACKWARD * _trains(work) + work.recompute


def _expert_seconds(work: Training, speed: Any, products: Any) -> Any:
    gemm = work.expert_s * products / (_efficiency(work.expert_small, work.ratio, speed) * speed.expert)
    wire = work.near_s * speed.near_exposed + work.far_s * speed.far_exposed
    return gemm + (work.permute_s * speed.permute + wire + work.local_experts * speed.route_s) * products / 3


def step_seconds(work: Training, speed: Any) -> Any:
    """One optimizer step: micro-batches, the pipeline's bubble, gradients, the optimizer."""
    run = work.micro_batches * micro_seconds(work, speed) * (1 + speed.bubble * work.bubble)
    return run + work.gradient_wire_s * speed.gradient_exposed + work.optimizer_s / speed.optimizer + speed.step_s


def forward_seconds(work: Training, speed: Any) -> Any:
    """A pass without gradient: `work.backward` and `work.recompute` are 0."""
    return work.micro_batches * micro_seconds(work, speed) * (1 + speed.bubble * work.bubble)


# --- what a model asks of a GPU ------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True, slots=True)
class _Model:
    """Per token and before any division: FLOPs of a forward and widths."""

    dense_flops: float  # linears of all blocks, routed experts excluded
    expert_flops: float
    head_flops: float
    score_flops: float  # per token of context
    windowed_flops: float  # per token of context, of layers that see a window
    window: int
    width: float  # of the MLPs that are not routed
    expert_width: float
    routed: float  # expert copies of a token, summed over layers
    moe_layers: int
    total: int
    expert_total: int
    head: int


@lru_cache(maxsize=256)
def _model(shape: ModelShape, scalar_head: bool) -> _Model:
    dense = expert = scores = windowed = width = routed = expert_total = 0.0
    window = moe_layers = 0
    expert_width = 1.0
    for count, block in shape.blocks:
        inside, experts = _numbers(block, shape.hidden)
        dense += 2 * count * inside
        expert_total += count * experts
        each = count * _score_flops(block.attention)
        if block.attention.window:
            windowed, window = windowed + each, block.attention.window
        else:
            scores += each
        if isinstance(block.mlp, MoeMlp):
            mlp = block.mlp
            expert += 2 * count * experts * mlp.active / mlp.experts
            routed, moe_layers, expert_width = routed + count * mlp.active, moe_layers + count, float(mlp.width)
        width = max(width, _width(block))
    head = 1 * shape.hidden if scalar_head else shape.vocab * shape.hidden
    return _Model(
        dense_flops=dense,
        expert_flops=expert,
        head_flops=2 * head,
        score_flops=scores,
        windowed_flops=windowed,
        window=window,
        width=width,
        expert_width=expert_width,
        routed=routed,
        moe_layers=moe_layers,
        total=parameters(shape, scalar_head=scalar_head),
        expert_total=int(expert_total),
        head=head,
    )


def _numbers(block: Block, hidden: int) -> tuple[int, int]:
    """(everything but routed experts, all routed experts)."""
    tensors = block_tensors(block, hidden=hidden)
    experts = sum(tensor.numel for tensor in tensors if tensor.module.startswith("experts."))
    return sum(tensor.numel for tensor in tensors) - experts, experts


def _width(block: Block) -> float:
    if isinstance(block.mlp, DenseMlp):
        return float(block.mlp.width)
    return float(block.mlp.shared_width or block.attention.o_width)


def _score_flops(attention: Attention) -> float:
    """Causal scores and weighted values of one token, per token of the row: 2 · heads · (d_qk + d_v) ÷ 2."""
    return attention.heads * (attention.head_dim + (attention.value_head_dim or attention.head_dim))


def passes_of(*, full: bool, recompute: float, gradient: bool = True) -> Passes:
    """6N, 8N with recompute; 4N, 6N for LoRA; 2N without gradient."""
    return Passes(backward=(2.0 if full else 1.0) if gradient else 0.0, recompute=recompute if gradient else 0.0)


def training_of(
    shape: ModelShape,
    gpu: Gpu,
    fabric: Fabric,
    spread: Spread,
    passes: Passes,
    *,
    tokens: float,
    row_tokens: float,
    precision: str = "bf16",
    optimizer_bytes: float = 30.0,
    trained: float = 1.0,
    gradient_bytes: float = 4.0,
    scalar_head: bool = False,
    dequantised_bytes: float = 0.0,
) -> Training:
    """Divide one optimizer step over the GPUs. `tokens` is a micro-batch of one data rank, all context ranks together.

    `trained` is the share of the parameters with gradients; `optimizer_bytes` are read and written a trained parameter.

    Raises:
        UnknownFact: no bandwidth, no peak at this precision.
    """
    model = _model(shape, scalar_head)
    local = tokens / spread.context
    stage = spread.tensor * spread.pipeline
    wide, peak, bandwidth = _half_peak(gpu), gpu.peak_flops_per_s(_units(gpu, precision)), gpu.bandwidth()
    seen = model.score_flops * row_tokens + model.windowed_flops * min(row_tokens, 2.0 * model.window)
    hidden_bytes = local * shape.hidden * 2
    element = hidden_bytes * shape.layers / stage / bandwidth
    # Tensor ranks share one micro-batch: each sends its part of the tokens to the experts.
    per_expert = local / spread.tensor * spread.expert * model.routed / max(1, model.moe_layers) / _experts(shape)
    held = model.total - model.expert_total * (1 - 1 / spread.expert)
    copies = model.routed / stage
    near, far = _exchange(gpu, fabric, spread)
    return Training(
        gemm_s=local * model.dense_flops / stage / peak,
        small=1 / local + 1 / shape.hidden + spread.tensor / model.width,
        ratio=peak / bandwidth * _OPERAND_BYTES[precision] / 2,
        head_s=local * model.head_flops / spread.tensor / spread.pipeline / wide,
        attention_s=local * seen / stage / wide,
        element_s=element,
        cast_s=element if _BYTES[precision] < 2 else 0.0,
        expert_s=local * model.expert_flops / stage / peak,
        expert_small=1 / max(1.0, per_expert) + 1 / shape.hidden + 1 / model.expert_width if model.moe_layers else 0.0,
        permute_s=hidden_bytes * copies / bandwidth,
        near_s=hidden_bytes * copies * near,
        far_s=hidden_bytes * copies * far,
        layers=shape.layers / spread.pipeline,
        local_experts=model.moe_layers / spread.pipeline * max(1.0, _experts(shape) / spread.expert),
        tensor_hops=12 * log2(spread.tensor) * shape.layers / spread.pipeline,
        tensor_wire_s=_ring(gpu, fabric, spread.tensor, 1) * 12 * hidden_bytes * shape.layers / spread.pipeline,
        context_wire_s=_ring(gpu, fabric, spread.context, spread.tensor) * 6 * _kv_bytes(shape, local) / stage,
        stage_wire_s=_handed_on(gpu, fabric, spread) * hidden_bytes / spread.tensor,
        shard_wire_s=_shard_wire(gpu, fabric, spread, held, gradient_bytes * trained),
        gradient_wire_s=0.0 if spread.sharded else _gradient_wire(gpu, fabric, spread, held * trained, gradient_bytes),
        optimizer_s=held / stage * trained * optimizer_bytes / max(1, spread.data * spread.context) / bandwidth,
        backward=passes.backward,
        recompute=passes.recompute,
        micro_batches=spread.micro_batches,
        bubble=(spread.pipeline - 1) / (spread.micro_batches * spread.virtual_pipeline),
        dequantise_s=dequantised_bytes / stage / bandwidth,
    )


def _units(gpu: Gpu, precision: str) -> str:
    """Cards without 16-bit brain floats multiply in fp16."""
    return "fp16" if precision == "bf16" and "bf16" not in gpu.flops_per_s else precision


def _half_peak(gpu: Gpu) -> float:
    return gpu.peak_flops_per_s("bf16" if "bf16" in gpu.flops_per_s else "fp16")


def _experts(shape: ModelShape) -> int:
    return next((block.mlp.experts for _, block in reversed(shape.blocks) if isinstance(block.mlp, MoeMlp)), 1)


def _kv_bytes(shape: ModelShape, tokens: float) -> float:
    """Keys and values that context ranks hand on."""
    return tokens * 2 * sum(c * (b.attention.kv_width + b.attention.v_width) for c, b in shape.blocks)


# --- wires ---------------------------------------------------------------------------------------------------------


def _ring(gpu: Gpu, fabric: Fabric, ranks: int, beside: int) -> float:
    """Seconds a byte of a ring over `ranks` GPUs that are `beside` places apart: (n − 1) ÷ n ÷ rate.

    Across hosts all members of a host send through their own ports: the ring is as fast as those together, and no
    faster than the link inside.
    """
    if ranks == 1:
        return 0.0
    rate = _inside(gpu, fabric)
    if ranks * beside > _near(gpu):
        rate = min(rate, fabric.bytes_per_s * max(1, _near(gpu) // beside))
    return (ranks - 1) / ranks / rate


def _inside(gpu: Gpu, fabric: Fabric) -> float:
    """Bytes per second and direction between cards of one host."""
    return gpu.link_bytes_per_s or gpu.pcie_bytes_per_s or fabric.bytes_per_s


def _near(gpu: Gpu) -> int:
    """GPUs under one fast link: a host, or a rack of NVL72."""
    return gpu.link_gpus or gpu.gpus_per_node


def _handed_on(gpu: Gpu, fabric: Fabric, spread: Spread) -> float:
    """Seconds a byte from stage to stage: each chunk receives and sends, forward and backward."""
    if spread.pipeline == 1:
        return 0.0
    near = spread.tensor * spread.pipeline * spread.context <= _near(gpu)
    return 2 * spread.virtual_pipeline / (_inside(gpu, fabric) if near else fabric.bytes_per_s)


def _shard_wire(gpu: Gpu, fabric: Fabric, spread: Spread, held: float, gradient_bytes: float) -> float:
    """FSDP, one micro-batch: 16-bit weights gathered, gradients reduce-scattered."""
    if not spread.sharded:
        return 0.0
    ranks = spread.data * spread.context
    numbers = held / spread.tensor / spread.pipeline
    return _ring(gpu, fabric, ranks, spread.tensor) * numbers * (2 * spread.gathers + gradient_bytes)


def _gradient_wire(gpu: Gpu, fabric: Fabric, spread: Spread, numbers: float, gradient_bytes: float) -> float:
    """Once a step: gradients reduce-scattered, weights gathered (ZeRO-1); an all-reduce moves as much."""
    ranks = spread.data * spread.context
    return _ring(gpu, fabric, ranks, spread.tensor) * numbers / spread.tensor / spread.pipeline * (gradient_bytes + 2)


def _exchange(gpu: Gpu, fabric: Fabric, spread: Spread) -> tuple[float, float]:
    """Seconds a byte of copies, (to GPUs under one link, to other hosts): there and back, forward and backward.

    What leaves the host goes through each GPU's own port.
    """
    ranks = spread.expert
    near = min(ranks, max(1, _near(gpu) // spread.tensor))
    return 4 * (near - 1) / ranks / _inside(gpu, fabric), 4 * (ranks - near) / ranks / fabric.bytes_per_s
