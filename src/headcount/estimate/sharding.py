"""Which transient copies does dividing a model over GPUs bring?

FSDP gathers blocks and the root group, ZeRO and DDP keep buckets, a whole-model gather stands behind SAVE and SYNC.
FSDP2 laws: measured on PyTorch 2.13 fake tensors over a fake process group (tests/ground_truth).
"""

from __future__ import annotations

from dataclasses import dataclass

from headcount.estimate.model_state import Held, held_block, stage_layers
from headcount.estimate.parameters import block_parameters, largest_tensor, parameters, root_tensors
from headcount.facts.model_shape import ModelShape
from headcount.job.layout import Layout, Shard
from headcount.ledger.derivation import Derived, derive
from headcount.units import MIB

__all__ = [
    "Unsharded",
    "ddp_buckets",
    "fetched_block",
    "fsdp_backward",
    "fsdp_end",
    "fsdp_forward",
    "fsdp_logits",
    "fsdp_reduce",
    "host_load",
    "in_flight_micro_batches",
    "unsharded",
    "whole_model",
    "zero3_live_parameters",
    "zero_buckets",
]  # fmt: skip

_SOURCE = "measured on PyTorch 2.13 FSDP2, fake process group (tests/ground_truth)"


@dataclass(frozen=True, kw_only=True, slots=True)
class Unsharded:
    """Sizes that FSDP's laws read: numbers of one block (P_l) and of the root group (P_r), after TP and EP."""

    block: float
    root: float
    layers: int
    largest_root: float = 0.0  # with the root split: the larger of embedding and head
    compute_bytes: int = 2
    reduce_bytes: int = 4
    stored_bytes: int = 4
    ranks: int = 1
    reshard: bool = True

    @property
    def numbers(self) -> dict[str, float]:
        """As formula inputs."""
        return {"block": self.block, "root": self.root, "compute_bytes": self.compute_bytes}


def unsharded(
    shape: ModelShape,
    layout: Layout,
    *,
    compute_bytes: int = 2,
    reduce_bytes: int = 4,
    stored_bytes: int = 4,
    scalar_head: bool = False,
    block_share: float = 1.0,
) -> Unsharded:
    """The largest block and the root group of one rank. Splitting the root leaves the larger of embedding and head.

    `block_share`: a quantised block is gathered as it is stored, this part of its 16-bit size.
    """
    block = max(held_block(block, hidden=shape.hidden, layout=layout).all for _, block in shape.blocks)
    tensors = root_tensors(shape, scalar_head=scalar_head)
    whole = sum(tensor.numel for tensor in tensors)
    root = max(tensor.numel for tensor in tensors) if layout.root_split else whole
    return Unsharded(
        block=block_share * block,
        root=root / layout.tensor,
        layers=stage_layers(shape, layout),
        compute_bytes=compute_bytes,
        reduce_bytes=reduce_bytes,
        stored_bytes=stored_bytes,
        ranks=layout.shard_degree,
        reshard=layout.reshard_after_forward,
    )


def fsdp_forward(sizes: Unsharded) -> Derived:
    """s·max(2P_r + 2P_l, P_r + 3P_l): block, its flat gather buffer and the previous one; all L without reshard."""
    if not sizes.reshard:
        return derive(
            "compute_bytes × (root + (layers + 2) × block)", source=_SOURCE, layers=sizes.layers, **sizes.numbers
        )
    return derive("compute_bytes × max(2 × root + 2 × block, root + 3 × block)", source=_SOURCE, **sizes.numbers)


def fsdp_logits(sizes: Unsharded) -> Derived:
    """s(P_r + P_l) under the logits: the root group and the last block, already prefetched for its backward."""
    layers = 1 if sizes.reshard else sizes.layers
    return derive("compute_bytes × (root + layers × block)", source=_SOURCE, layers=layers, **sizes.numbers)


def fsdp_backward(sizes: Unsharded, *, layer: int | None = None) -> Derived:
    """While layer i runs backward: root and block, the next block's gather, the previous block's gradients on the way.

    s(P_r + P_l) + s·P_l (i > 0) + s_r·P_l (i < L−1). The sharded gradients of finished layers and the head's
    gradient are rows of their own. None: the middle of the stack, where both terms are alive.
    """
    middle = layer is None
    prefetched = 1 if middle or layer else 0
    reducing = 1 if middle or (layer is not None and layer < sizes.layers - 1) else 0
    kept = 0 if sizes.reshard else (sizes.layers - 1 if layer is None else layer)
    return derive(
        "compute_bytes × (root + block) + prefetched × compute_bytes × block + reducing × reduce_bytes × block",
        source=_SOURCE,
        prefetched=max(prefetched, kept) if not sizes.reshard else prefetched,
        reducing=reducing,
        reduce_bytes=sizes.reduce_bytes,
        **sizes.numbers,
    )


def finished_gradients(sizes: Unsharded, *, layer: int) -> Derived:
    """Sharded gradients of the layers above `layer`: (L − 1 − i)·P_l·s_m ÷ W."""
    return derive(
        "(layers − 1 − layer) × block × stored_bytes ÷ ranks",
        source=_SOURCE,
        layers=sizes.layers,
        layer=layer,
        block=sizes.block,
        stored_bytes=sizes.stored_bytes,
        ranks=sizes.ranks,
    )


def fsdp_reduce(sizes: Unsharded) -> Derived:
    """Reduce of a block (few tokens): s(P_r + 2P_l) + s·P_l + s_r·P_l; the head's gradient is a row of its own."""
    return derive(
        "compute_bytes × (root + 2 × block) + compute_bytes × block + reduce_bytes × block",
        source=_SOURCE,
        reduce_bytes=sizes.reduce_bytes,
        **sizes.numbers,
    )


def fsdp_end(sizes: Unsharded) -> Derived:
    """Reduce of the root group: max(2·P_r·s + P_l·s_r, P_r(s + s_r)); the sharded gradients are a row of their own."""
    return derive(
        "max(2 × root × compute_bytes + block × reduce_bytes, root × (compute_bytes + reduce_bytes))",
        source=_SOURCE,
        reduce_bytes=sizes.reduce_bytes,
        **sizes.numbers,
    )


def ddp_buckets(numbers: Held, *, gradient_bytes: int, bucket_bytes: int = 25 * MIB, views: bool = False) -> Derived:
    """DDP copies every gradient into buckets (one more copy of them all) unless gradients are views of the buckets."""
    return derive(
        "copies × gradients × gradient_bytes + bucket_bytes",
        source="torch.nn.parallel.DistributedDataParallel: gradient_as_bucket_view, bucket_cap_mb = 25",
        copies=0 if views else 1,
        gradients=numbers.all,
        gradient_bytes=gradient_bytes,
        bucket_bytes=bucket_bytes,
    )


def zero_buckets(
    layout: Layout, *, numbers: Held, compute_bytes: int = 2, bucket: int = 5 * 10**8, overlap: bool = True
) -> Derived:
    """DeepSpeed's reduce and all-gather buckets: 4.5 × both with overlap_comm, never more than the model.

    https://huggingface.co/docs/transformers/deepspeed: "overlap_comm uses 4.5x the bucket sizes", 9 GB at 5e8.
    """
    return derive(
        "buffers × min(bucket, parameters) × compute_bytes",
        source="DeepSpeed runtime/zero/config.py: reduce_bucket_size, allgather_bucket_size = 5e8 elements",
        buffers=(9.0 if overlap else 2.0) if layout.shard is not Shard.ZERO3 else (4.5 if overlap else 1.0),
        bucket=bucket,
        parameters=numbers.all,
        compute_bytes=compute_bytes,
    )


def zero3_live_parameters(
    shape: ModelShape, *, compute_bytes: int = 2, live: int = 10**9, prefetch: int = 5 * 10**7
) -> Derived:
    """ZeRO-3 keeps up to `max_live_parameters` gathered: a floor that no number of GPUs shrinks."""
    return derive(
        "min(live + prefetch, parameters) × compute_bytes",
        source="DeepSpeed runtime/zero/config.py: max_live_parameters 1e9, prefetch_bucket_size 5e7",
        live=live,
        prefetch=prefetch,
        parameters=parameters(shape),
        compute_bytes=compute_bytes,
    )


def fetched_block(shape: ModelShape, *, compute_bytes: int = 2) -> Derived:
    """Parameters on the host: the block at work and the next one on their way."""
    block = max(block_parameters(block, hidden=shape.hidden) for _, block in shape.blocks)
    return derive("2 × block × compute_bytes", block=block, compute_bytes=compute_bytes)


def in_flight_micro_batches(layout: Layout) -> Derived:
    """Micro-batches whose activations stage 0 holds under 1F1B, counted in its own layers.

    pp micro-batches; interleaved: pp·(1 + (pp − 1) ÷ (pp·v)), Korthikanti et al., arXiv:2205.05198 §4.2.3.
    """
    virtual = layout.virtual_pipeline
    return derive(
        "min(micro_batches, pipeline) × (1 + interleaved × (pipeline − 1) ÷ (pipeline × virtual))",
        source="arXiv:2205.05198, 1F1B and its interleaved form",
        micro_batches=max(layout.pipeline_micro_batches, 1),
        pipeline=layout.pipeline,
        interleaved=int(virtual > 1),
        virtual=virtual,
    )


def whole_model(shape: ModelShape, *, weight_bytes: float, scalar_head: bool = False) -> Derived:
    """Every weight gathered on one rank at once: SAVE of a full state dict, SYNC or generation in place."""
    return derive(
        "parameters × weight_bytes",
        source="a full state dict on one rank",
        parameters=parameters(shape, scalar_head=scalar_head),
        weight_bytes=weight_bytes,
    )


def streamed_gather(shape: ModelShape, *, weight_bytes: float, bucket_bytes: float = 0) -> Derived:
    """Weights gathered tensor by tensor (or bucket by bucket): the larger of one tensor and one bucket."""
    return derive(
        "max(largest_tensor × weight_bytes, bucket_bytes)",
        source="gather of one parameter at a time",
        largest_tensor=largest_tensor(shape),
        weight_bytes=weight_bytes,
        bucket_bytes=bucket_bytes,
    )


def host_load(
    shape: ModelShape, layout: Layout, *, weight_bytes: float, every_rank: bool, meta: bool = False
) -> Derived:
    """Host bytes per node while loading: one whole copy a rank, one on rank 0, or the node's shards (meta device)."""
    ranks = min(layout.gpus, layout.gpus_per_node)
    if meta:
        return derive(
            "parameters × weight_bytes × ranks_per_node ÷ gpus",
            source="meta-device initialisation, shards read in place",
            parameters=parameters(shape),
            weight_bytes=weight_bytes,
            ranks_per_node=ranks,
            gpus=layout.gpus,
        )
    return derive(
        "copies × parameters × weight_bytes",
        source="from_pretrained before sharding",
        copies=ranks if every_rank else 1,
        parameters=parameters(shape),
        weight_bytes=weight_bytes,
    )
