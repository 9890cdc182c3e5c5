"""How long does one optimizer step of training take on a layout?

A micro-batch is the sum of what its kernels do: matrix products at a share of peak that falls when they are small,
attention at its own share, element-wise traffic at a share of bandwidth, launches, the tensor-parallel wire, experts.
The host queues the launches ahead of the device; FSDP's gathers run beside both. Pipelines add the bubble; the step
adds gradient exchange and the optimizer. The shares are calibrated: facts/data/training_speed.toml, made by
scripts/fit_training.

Two stages for a search over layouts: `training_of` divides the work, `step_seconds` prices it; both together take some
25 microseconds. `training_model` does both and says the parts with their bands.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from math import log2
from typing import Any, Literal

from headcount.estimate.communication import Spread, exchange, gradient_wire, handed_on, ring, shard_wire
from headcount.estimate.parameters import block_tensors, parameters
from headcount.facts.gpu import Gpu
from headcount.facts.link import Fabric, usual_fabric
from headcount.facts.model_shape import Attention, Block, DenseMlp, ModelShape, MoeMlp
from headcount.facts.training_speed import TrainingSpeed, training_speed
from headcount.ledger.predicted import Band

__all__ = [
    "Passes",
    "Spread",
    "Training",
    "TrainingTime",
    "forward_model",
    "forward_seconds",
    "micro_parts",
    "micro_seconds",
    "passes_of",
    "step_seconds",
    "time_of",
    "training_model",
    "training_of",
]

# Backward over forward: matrix products 2 (1 without weight gradients), attention 2.5 (FlashAttention recomputes
# scores), element-wise 1.3.
_ATTENTION_BACKWARD, _ELEMENT_BACKWARD = 2.5, 1.3
NF4_PASS_BYTES = 2.5  # of a 4-bit weight in one pass: half a byte read, two written; the product reads them again
# Mean bytes of a product's three operands: 8- and 4-bit inputs, 16-bit output.
_OPERAND_BYTES = {"bf16": 2.0, "fp16": 2.0, "fp8": 4 / 3, "fp8-rowwise": 4 / 3, "fp4": 1.0}


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
    logit_s: Any  # logits of 2 bytes ÷ bandwidth
    attention_s: Any  # forward scores ÷ 16-bit peak
    element_s: Any  # tokens × hidden × 2 bytes × layers ÷ bandwidth
    cast_s: Any  # the same where inputs are cast to 8 or 4 bits; 0 else
    expert_s: Any  # forward products of routed experts ÷ peak
    expert_small: Any
    permute_s: Any  # bytes of tokens sent to their experts and back ÷ bandwidth
    near_s: Any  # the same ÷ link, to experts on the same host, forward and backward
    far_s: Any  # the same ÷ fabric, to other hosts that hold experts
    layers: Any  # of one stage
    moe_layers: Any  # of them: the host waits for the routing of each
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


def _beside(main: Any, other: Any, exponent: Any) -> Any:
    """What `other` adds when it runs beside `main`: (mᵖ + oᵖ)^(1 ÷ p) − m; all of it at p = 1, the excess at p = ∞."""
    return (main**exponent + other**exponent) ** (1 / exponent) - main


def micro_parts(work: Training, speed: Any) -> dict[str, Any]:
    """Forward and backward of one micro-batch on one stage; parts that run beside others count what they add."""
    products = 1 + work.backward + work.recompute
    elements = 1 + _ELEMENT_BACKWARD * _trains(work) + work.recompute
    gemm = work.gemm_s * products / _efficiency(work.small, work.ratio, speed)
    parts = {
        "matrix products": gemm,
        "vocabulary head": work.head_s * (1 + work.backward) / speed.head
        + work.logit_s * speed.logit * (1 + _trains(work)) / 2,
        "experts": work.expert_s * products / (_efficiency(work.expert_small, work.ratio, speed) * speed.expert),
        "dequantisation": work.dequantise_s * products,
        "attention": work.attention_s * _attention_passes(work) / speed.attention,
        "element-wise": (work.element_s * speed.element + work.cast_s * speed.cast) * elements,
        "permutation": work.permute_s * speed.permute * products / 3,
        "wires": _wires(work, speed, gemm, products),
    }
    device = sum(parts.values())
    parts["launches"] = _beside(device, _host_seconds(work, speed), speed.ahead)
    parts["gathers"] = _beside(device + parts["launches"], work.shard_wire_s / speed.wire, speed.overlap)
    return parts


def micro_seconds(work: Training, speed: Any) -> Any:
    """One micro-batch: its parts add up."""
    return sum(micro_parts(work, speed).values())


def _wires(work: Training, speed: Any, gemm: Any, products: Any) -> Any:
    """Tensor ranks exchange hidden states beside the products (or not: p = 1), experts and stages their tokens."""
    tensor = _beside(gemm, work.tensor_wire_s * products / 3, speed.tensor_beside)
    experts = (work.near_s * speed.near_exposed + work.far_s * speed.far_exposed) * products / 3
    hops = work.tensor_hops * speed.hop_s * products / 3
    return (
        tensor + hops + experts + work.context_wire_s * speed.context_exposed + work.stage_wire_s * speed.stage_exposed
    )


def _host_seconds(work: Training, speed: Any) -> Any:
    """The host launches a layer's kernels, waits for each routing and launches every local expert; backward twice.

    Weights that are gathered or unpacked add their hooks and kernels to every layer.
    """
    layer_s = speed.launch_s + speed.hook_s * (work.shard_wire_s > 0) + speed.unpack_s * (work.dequantise_s > 0)
    launched = work.layers * layer_s + work.moe_layers * speed.sync_s + work.local_experts * speed.route_s
    return launched * (1 + 2 * _trains(work) + work.recompute) / 3


def _trains(work: Training) -> Any:
    """1 with a backward, 0 without."""
    return (work.backward > 0) * 1.0


def _attention_passes(work: Training) -> Any:
    return 1 + _ATTENTION_BACKWARD * _trains(work) + work.recompute


def step_seconds(work: Training, speed: Any) -> Any:
    """One optimizer step: micro-batches, the pipeline's bubble, gradients, the optimizer."""
    run = work.micro_batches * micro_seconds(work, speed) * (1 + speed.bubble * work.bubble)
    return run + work.gradient_wire_s * speed.gradient_exposed + work.optimizer_s / speed.optimizer + speed.step_s


def forward_seconds(work: Training, speed: Any) -> Any:
    """A pass without gradient: `work.backward` and `work.recompute` are 0."""
    return work.micro_batches * micro_seconds(work, speed) * (1 + speed.bubble * work.bubble)


@dataclass(frozen=True, kw_only=True, slots=True)
class TrainingTime:
    """The parts of one optimizer step (or one pass without gradient), in seconds; they add up to `total`."""

    products: Band  # matrix products of blocks, experts and head, unpacked weights
    attention: Band
    element_wise: Band  # norms, activations, residuals, casts, permutation of routed tokens
    communication: Band  # what is waited for
    launches: Band  # by which the host is late
    bubble: Band
    optimizer: Band

    @property
    def total(self) -> Band:
        """One cause of error, the shares of peak: widths add whole."""
        rest = (self.attention, self.element_wise, self.communication, self.launches, self.bubble, self.optimizer)
        total = self.products
        for part in rest:
            total = total.together(part)
        return total


def training_model(
    shape: ModelShape,
    gpu: Gpu,
    spread: Spread,
    *,
    micro_batch_tokens: float,
    row_tokens: float,
    tuning: Literal["full", "lora", "qlora"] = "full",
    trained: float = 1.0,
    recompute: float = 0.0,
    framework: str = "fsdp",
    precision: str = "bf16",
    scalar_head: bool = False,
    fabric: Fabric | None = None,
) -> TrainingTime:
    """One optimizer step in parts. `recompute` is the share of the forward that is repeated: 1 with full checkpointing.

    Raises:
        UnknownFact: no bandwidth, no peak at this precision, nobody measured this kind of card.
    """
    work = training_of(
        shape,
        gpu,
        fabric or usual_fabric(gpu.architecture),
        spread,
        passes_of(full=tuning == "full", recompute=recompute),
        tokens=micro_batch_tokens,
        row_tokens=row_tokens,
        precision=precision,
        trained=trained,
        scalar_head=scalar_head,
        dequantised_bytes=NF4_PASS_BYTES * parameters(shape) if tuning == "qlora" else 0.0,
    )
    return time_of(work, training_speed(gpu.architecture, precision, framework, mixture=shape.moe), step=True)


def forward_model(
    shape: ModelShape,
    gpu: Gpu,
    spread: Spread,
    *,
    micro_batch_tokens: float,
    row_tokens: float,
    framework: str = "fsdp",
    precision: str = "bf16",
    scalar_head: bool = False,
    fabric: Fabric | None = None,
) -> TrainingTime:
    """A pass without gradient over all micro-batches, in parts."""
    passes = passes_of(full=True, recompute=0.0, gradient=False)
    work = training_of(
        shape,
        gpu,
        fabric or usual_fabric(gpu.architecture),
        spread,
        passes,
        tokens=micro_batch_tokens,
        row_tokens=row_tokens,
        precision=precision,
        trained=0.0,
        scalar_head=scalar_head,
    )
    return time_of(work, training_speed(gpu.architecture, precision, framework, mixture=shape.moe), step=False)


def time_of(work: Training, speed: TrainingSpeed, *, step: bool) -> TrainingTime:
    """The parts of a step, or of a pass without gradient."""
    low, high = speed.spread
    parts = {name: work.micro_batches * seconds for name, seconds in micro_parts(work, speed).items()}

    def band(*names: str, more: float = 0.0) -> Band:
        seconds = sum(parts[name] for name in names) + more
        return Band(low * seconds, seconds, high * seconds)

    return TrainingTime(
        products=band("matrix products", "vocabulary head", "experts", "dequantisation"),
        attention=band("attention"),
        element_wise=band("element-wise", "permutation"),
        communication=band("wires", "gathers", more=step * work.gradient_wire_s * speed.gradient_exposed),
        launches=band("launches"),
        bubble=band(more=sum(parts.values()) * speed.bubble * work.bubble),
        optimizer=band(more=step * (work.optimizer_s / speed.optimizer + speed.step_s)),
    )


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
    local, stage = tokens / spread.context, spread.tensor * spread.pipeline
    wide, peak, bandwidth = _half_peak(gpu), gpu.peak_flops_per_s(_units(gpu, precision)), gpu.bandwidth()
    seen = model.score_flops * row_tokens + model.windowed_flops * min(row_tokens, 2.0 * model.window)
    element = local * shape.hidden * 2 * shape.layers / stage / bandwidth
    held = model.total - model.expert_total * (1 - 1 / spread.expert)
    trained = trained if passes.backward else 0.0
    return Training(
        gemm_s=local * model.dense_flops / stage / peak,
        small=1 / local + 1 / shape.hidden + spread.tensor / model.width,
        ratio=peak / bandwidth * _OPERAND_BYTES[precision] / 2,
        head_s=local * model.head_flops / stage / wide,
        logit_s=local * 2 * model.head / shape.hidden / stage / bandwidth,
        attention_s=local * seen / stage / wide,
        element_s=element,
        cast_s=element if _OPERAND_BYTES[precision] < 2 else 0.0,
        layers=shape.layers / spread.pipeline,
        shard_wire_s=shard_wire(gpu, fabric, spread, held, gradient_bytes * trained),
        gradient_wire_s=0.0 if spread.sharded else gradient_wire(gpu, fabric, spread, held * trained, gradient_bytes),
        optimizer_s=held / stage * trained * optimizer_bytes / max(1, spread.data * spread.context) / bandwidth,
        backward=passes.backward,
        recompute=passes.recompute,
        micro_batches=spread.micro_batches,
        bubble=(spread.pipeline - 1) / (spread.micro_batches * spread.virtual_pipeline),
        dequantise_s=dequantised_bytes / stage / bandwidth,
        **_expert_work(model, shape, gpu, fabric, spread, local, peak),
        **_token_wires(shape, gpu, fabric, spread, local),
    )


def _expert_work(
    model: _Model, shape: ModelShape, gpu: Gpu, fabric: Fabric, spread: Spread, local: float, peak: float
) -> dict[str, float]:
    """Routed experts: tensor ranks share one micro-batch, and each sends its part of the tokens to the experts."""
    active, experts = model.routed / max(1, model.moe_layers), _experts(shape)
    per_expert = local / spread.tensor * spread.expert * active / experts
    small = 1 / max(1.0, per_expert) + 1 / shape.hidden + 1 / model.expert_width
    copied_bytes = local * shape.hidden * 2 * model.routed / spread.tensor / spread.pipeline
    near, far = exchange(gpu, fabric, ranks=spread.expert, beside=spread.tensor, copies=max(1.0, active))
    moe_layers = model.moe_layers / spread.pipeline
    return {
        "expert_s": local * model.expert_flops / spread.tensor / spread.pipeline / peak,
        "expert_small": small if model.moe_layers else 0.0,
        "permute_s": copied_bytes / gpu.bandwidth(),
        "near_s": 4 * copied_bytes * near,
        "far_s": 4 * copied_bytes * far,
        "moe_layers": moe_layers,
        "local_experts": moe_layers * max(1.0, experts / spread.expert),
    }


def _token_wires(shape: ModelShape, gpu: Gpu, fabric: Fabric, spread: Spread, local: float) -> dict[str, float]:
    """Hidden states between tensor ranks and stages, keys and values between context ranks; forward and backward.

    A layer has 12 collectives: two gathers and two scatters, their mirror images, and gathers for weight gradients.
    """
    hidden_bytes, layers = local * shape.hidden * 2, shape.layers / spread.pipeline
    around = ring(gpu, fabric, ranks=spread.context, beside=spread.tensor)
    return {
        "tensor_hops": 12 * log2(spread.tensor) * layers,
        "tensor_wire_s": ring(gpu, fabric, ranks=spread.tensor) * 12 * hidden_bytes * layers,
        "context_wire_s": around * 6 * _kv_bytes(shape, local) / spread.tensor / spread.pipeline,
        "stage_wire_s": handed_on(gpu, fabric, spread) * hidden_bytes / spread.tensor,
    }


def _units(gpu: Gpu, precision: str) -> str:
    """Cards without 16-bit brain floats multiply in fp16; a scale for each row needs the 8-bit units all the same."""
    if precision == "fp8-rowwise":
        return "fp8"
    return "fp16" if precision == "bf16" and "bf16" not in gpu.flops_per_s else precision


def _half_peak(gpu: Gpu) -> float:
    return gpu.peak_flops_per_s("bf16" if "bf16" in gpu.flops_per_s else "fp16")


def _experts(shape: ModelShape) -> int:
    return next((block.mlp.experts for _, block in reversed(shape.blocks) if isinstance(block.mlp, MoeMlp)), 1)


def _kv_bytes(shape: ModelShape, tokens: float) -> float:
    """Keys and values that context ranks hand on."""
    return tokens * 2 * sum(c * (b.attention.kv_width + b.attention.v_width) for c, b in shape.blocks)
