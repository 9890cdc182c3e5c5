"""How many bytes of weights, gradients and optimizer state does one GPU hold?

Counts first (`held`: the numbers on one GPU before data-parallel sharding), then bytes per number, then the division
that the layout does. The worst pipeline stage counts: the first with the embedding, or the last with norm and head.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate
from math import ceil

from headcount.estimate.parameters import Kind, Tensor, adapter_parts, block_tensors, largest_tensor, root_tensors
from headcount.facts.model_shape import Attention, Block, ModelShape
from headcount.job.layout import Layout
from headcount.ledger.derivation import Derived, derive

__all__ = [
    "Held",
    "cast_copies",
    "dequantised_copy",
    "frozen_weights",
    "gradients",
    "held",
    "held_adapters", "held_block",
    "nf4_bytes_per_parameter",
    "optimizer_state",
    "stage_layers",
    "state_total",
    "step_temporary",
    "weights",
]  # fmt: skip

Select = Callable[[Tensor], bool]


@dataclass(frozen=True, slots=True)
class Held:
    """Numbers on one GPU after tensor, pipeline and expert parallelism, before sharding over data-parallel ranks."""

    dense: int
    experts: int = 0

    @property
    def all(self) -> int:
        """Dense and expert numbers together."""
        return self.dense + self.experts

    def __add__(self, other: Held) -> Held:
        return Held(self.dense + other.dense, self.experts + other.experts)

    def times(self, count: int) -> Held:
        """The same tensors `count` times."""
        return Held(self.dense * count, self.experts * count)


def held(shape: ModelShape, layout: Layout, *, scalar_head: bool = False, select: Select | None = None) -> Held:
    """Numbers of the selected tensors (None: all) on the GPU of the largest pipeline stage."""
    if select is None:
        # Only these degrees matter here: one entry serves every sharding and offload of a search.
        degrees = Layout(
            gpus=layout.model_parallel,
            tensor=layout.tensor,
            pipeline=layout.pipeline,
            expert=layout.expert,
            layer_split=layout.layer_split,
        )
        return _held_whole(shape, degrees, scalar_head)
    return _held(shape, layout, scalar_head=scalar_head, select=select)


@lru_cache(maxsize=4096)
def _held_whole(shape: ModelShape, degrees: Layout, scalar_head: bool) -> Held:
    return _held(shape, degrees, scalar_head=scalar_head, select=None)


def _held(shape: ModelShape, layout: Layout, *, scalar_head: bool, select: Select | None) -> Held:
    stages = layout.pipeline * layout.layer_split
    each = [
        (count, _sum(block_tensors(block, hidden=shape.hidden), layout, select, block.attention))
        for count, block in shape.blocks
    ]
    if stages == 1:
        root = _sum(root_tensors(shape, scalar_head=scalar_head), layout, select)
        return sum((block.times(count) for count, block in each), start=root)
    blocks = [block for count, block in each for _ in range(count)]
    first, last = _roots(shape, layout, scalar_head=scalar_head, select=select)
    per_stage = _cut(blocks, stages)
    per_stage[0] += first
    per_stage[-1] += last
    return max(per_stage, key=lambda stage: stage.all)


def held_block(block: Block, *, hidden: int, layout: Layout) -> Held:
    """Numbers of one block on one GPU before sharding: what FSDP gathers, all local experts included."""
    return _sum(block_tensors(block, hidden=hidden), layout, None, block.attention)


def stage_layers(shape: ModelShape, layout: Layout) -> int:
    """Layers of the fullest stage."""
    return ceil(shape.layers / (layout.pipeline * layout.layer_split))


def _cut(blocks: list[Held], stages: int) -> list[Held]:
    """Contiguous stages whose sizes differ by at most one layer, the longer ones first."""
    sizes = [len(blocks) // stages + (stage < len(blocks) % stages) for stage in range(stages)]
    ends = list(accumulate(sizes))
    return [sum(blocks[end - size : end], start=Held(0)) for size, end in zip(sizes, ends, strict=True)]


def _roots(shape: ModelShape, layout: Layout, *, scalar_head: bool, select: Select | None) -> tuple[Held, Held]:
    """What the first and the last stage hold besides blocks; a tied embedding sits on both."""
    tensors = root_tensors(shape, scalar_head=scalar_head)
    front = tuple(t for t in tensors if t.kind in (Kind.EMBEDDING, Kind.POSITION))
    back = tuple(t for t in tensors if t not in front)
    if shape.tied and not scalar_head:
        back += tuple(t for t in tensors if t.kind is Kind.EMBEDDING)
    return _sum(front, layout, select), _sum(back, layout, select)


def _sum(
    tensors: tuple[Tensor, ...], layout: Layout, select: Select | None, attention: Attention | None = None
) -> Held:
    dense = experts = 0
    for tensor in tensors:
        if select is not None and not select(tensor):
            continue
        if tensor.module.startswith("experts."):
            experts += ceil(tensor.numel / layout.expert / layout.tensor)
        else:
            dense += _one_rank(tensor, layout.tensor, attention)
    return Held(dense, experts)


def _one_rank(tensor: Tensor, ranks: int, attention: Attention | None) -> int:
    """TP divides linears; norms stay whole; keys and values are copied once the ranks outnumber their heads."""
    if not tensor.tensor_parallel or ranks == 1:
        return tensor.numel
    if attention is not None and tensor.module.split(".")[0] in (attention.k_name, attention.v_name):
        return tensor.numel * ceil(attention.kv_heads / ranks) // attention.kv_heads
    return ceil(tensor.numel / ranks)


def held_adapters(shape: ModelShape, layout: Layout, *, rank: int, targets: tuple[str, ...]) -> Held:
    """LoRA's A (rank × columns) and B (rows × rank) on one GPU, counted whole under TP: an upper bound, and small."""

    dense, experts, head = adapter_parts(shape, rank=rank, targets=targets)
    stages = layout.pipeline * layout.layer_split
    return Held(ceil(dense / stages) + head, ceil(experts / stages / layout.expert))


def _divided(
    kind: str, numbers: Held, bytes_each: float, layout: Layout, *, sharded: bool, source: str = ""
) -> Derived:
    """numbers × bytes ÷ ranks; experts have a shard degree of their own."""
    ranks = layout.shard_degree if sharded else 1
    name = f"{kind}_bytes"
    if not numbers.experts and ranks == 1:
        formula = f"parameters × {name}"
        return derive(formula, source=source, parameters=numbers.dense, **{name: bytes_each})
    if not numbers.experts:
        formula = f"parameters × {name} ÷ ranks"
        return derive(formula, source=source, parameters=numbers.dense, ranks=ranks, **{name: bytes_each})
    return derive(
        f"(dense_parameters ÷ ranks + expert_parameters ÷ expert_ranks) × {kind}_bytes",
        source=source,
        dense_parameters=numbers.dense,
        ranks=ranks,
        expert_parameters=numbers.experts,
        expert_ranks=layout.expert_shard_degree if sharded else 1,
        **{f"{kind}_bytes": bytes_each},
    )


def weights(numbers: Held, layout: Layout, *, weight_bytes: float) -> Derived:
    """Weights as they are kept; ZeRO-3 and FSDP divide them."""
    return _divided("weight", numbers, weight_bytes, layout, sharded=layout.shard.divides_weights)


def gradients(numbers: Held, layout: Layout, *, gradient_bytes: float) -> Derived:
    """Gradients as they are kept between backward and step; ZeRO-2, ZeRO-3 and FSDP divide them."""
    return _divided("gradient", numbers, gradient_bytes, layout, sharded=layout.shard.divides_gradients)


def optimizer_state(numbers: Held, layout: Layout, *, master_bytes: float, moment_bytes: float) -> dict[str, Derived]:
    """fp32 master weights (0: none beside the weights) and the moments; every ZeRO stage and FSDP divide them."""
    sharded = layout.shard.divides_optimizer
    terms = {"moments": _divided("moment", numbers, moment_bytes, layout, sharded=sharded)}
    if master_bytes:
        terms["master weights"] = _divided("master", numbers, master_bytes, layout, sharded=sharded)
    return terms


def step_temporary(numbers: Held, layout: Layout, *, copies: float, state_bytes: float) -> Derived:
    """What the step itself allocates. foreach: one list of square roots as large as the weights; fused: nothing."""
    return _divided(
        "temporary",
        numbers,
        copies * state_bytes,
        layout,
        sharded=layout.shard.divides_optimizer,
        source="measured on PyTorch 2.13: AdamW foreach 1 copy, fused 0",
    )


def for_loop_temporary(shape: ModelShape, *, state_bytes: float) -> Derived:
    """AdamW tensor by tensor: two temporaries of the largest one."""
    return derive(
        "2 × largest_tensor × state_bytes",
        source="measured on PyTorch 2.13",
        largest_tensor=largest_tensor(shape),
        state_bytes=state_bytes,
    )


def sub_group_temporary(numbers: Held, layout: Layout, *, sub_group: int = 10**9, foreach: float = 0.0) -> Derived:
    """ZeRO's step converts one sub-group of gradients to fp32 at a time (DeepSpeed's default: 10⁹ elements).

    A torch AdamW handed to DeepSpeed allocates its square roots in fp32 on top; DeepSpeed's own fused one does not.
    """
    return derive(
        "4 × (1 + foreach) × min(parameters ÷ ranks, sub_group)",
        source="DeepSpeed runtime/zero/config.py: sub_group_size",
        parameters=numbers.all,
        ranks=layout.shard_degree,
        sub_group=sub_group,
        foreach=foreach,
    )


def cast_copies(shape: ModelShape, *, compute_bytes: int = 2) -> Derived:
    """Autocast outside the blocks: the head's 16-bit copy lives until its backward (blocks count their own)."""
    return derive(
        "vocabulary × hidden × compute_bytes",
        source="autocast keeps each cast weight until backward",
        vocabulary=shape.vocab,
        hidden=shape.hidden,
        compute_bytes=compute_bytes,
    )


def frozen_weights(
    shape: ModelShape,
    layout: Layout,
    *,
    linear_bytes: float,
    other_bytes: float = 2,
    norm_bytes: float = 2,
    scalar_head: bool = False,
) -> dict[str, Derived]:
    """Frozen weights. Only the blocks' linears are quantised; embedding and head stay 16-bit, norms as prepared."""
    if linear_bytes == other_bytes == norm_bytes:
        return {"weights": weights(held(shape, layout, scalar_head=scalar_head), layout, weight_bytes=linear_bytes)}
    parts: dict[str, tuple[float, Select]] = {
        "linears": (linear_bytes, _is_linear),
        "norms": (norm_bytes, lambda tensor: tensor.kind is Kind.NORM),
        "embedding, head, other": (other_bytes, lambda tensor: not _is_linear(tensor) and tensor.kind is not Kind.NORM),
    }
    return {
        name: weights(held(shape, layout, scalar_head=scalar_head, select=select), layout, weight_bytes=each)
        for name, (each, select) in parts.items()
    }


def _is_linear(tensor: Tensor) -> bool:
    return tensor.kind in (Kind.LINEAR, Kind.EXPERT)


def dequantised_copy(shape: ModelShape, *, compute_bytes: int = 2) -> Derived:
    """QLoRA computes with a 16-bit copy of one linear at a time: the largest one, twice while backward overlaps."""
    tensors = (t for _, block in shape.blocks for t in block_tensors(block, hidden=shape.hidden))
    linears = (t.rows * t.columns for t in tensors if _is_linear(t))
    return derive(
        "2 × largest_linear × compute_bytes",
        source="bitsandbytes MatMul4Bit dequantises the whole weight in forward and again in backward",
        largest_linear=max(linears),
        compute_bytes=compute_bytes,
    )


def nf4_bytes_per_parameter(*, block: int = 64, double_quant: bool = True) -> Derived:
    """NF4: 4 bits and one scale per 64 weights: 0.5 + 4/64; double quantisation makes the scale a byte (0.516)."""
    source = "QLoRA, arXiv:2305.14314 §3"
    if not double_quant:
        return derive("0.5 + 4 ÷ block", source=source, block=block)
    return derive("0.5 + 1 ÷ block + 4 ÷ (block × 256)", source=source, block=block)


def state_total(parameters: float, *, bytes_per_parameter: float) -> Derived:
    """The naive total that everybody quotes: parameters × bytes, no sharding, no activations."""
    return derive("parameters × bytes_per_parameter", parameters=parameters, bytes_per_parameter=bytes_per_parameter)
