"""Which forward (and backward) does a network run in a phase, on one GPU?"""

from __future__ import annotations

from dataclasses import replace

from headcount.estimate.activations import Pass
from headcount.estimate.model_state import stage_layers
from headcount.estimate.sharding import Unsharded, in_flight_micro_batches, unsharded
from headcount.job.job import Job, MicroBatch, Network, Tuning
from headcount.job.layout import Layout, Shard

__all__ = ["gathered", "layer_passes", "no_grad_pass", "update_pass"]


def _compute_bytes(network: Network) -> int:
    """A frozen network computes in the dtype of its unquantised weights; fp32 bases under autocast in 16 bits."""
    if network.tuning is Tuning.FROZEN:
        return min(network.frozen.other_bytes, network.precision.compute_bytes)
    return network.precision.compute_bytes


def _pass(job: Job, network: Network, micro_batch: MicroBatch) -> Pass:
    layout = job.layouts[network.group]
    base_is_fp32 = network.tuning is Tuning.LORA and network.frozen.weight_bytes == 4
    return Pass(
        micro_batch=micro_batch,
        kernels=job.kernels,
        compute_bytes=_compute_bytes(network),
        tuning=network.tuning,
        adapter=network.adapter,
        autocast=network.trainable and network.precision.autocast and (network.tuning is Tuning.FULL or base_is_fp32),
        quantised_base=network.tuning is Tuning.QLORA and network.frozen.keeps_input,
        tensor=layout.tensor,
        sequence_parallel=layout.sequence_parallel,
        context=layout.context,
        on_cpu=job.kernels.on_cpu,
    )


def update_pass(job: Job, network: Network) -> Pass:
    """The forward and backward of one micro-batch."""
    return _pass(job, network, job.update)


def no_grad_pass(job: Job, network: Network, micro_batch: MicroBatch) -> Pass:
    """A forward without gradient: nothing is kept, nothing is checkpointed; a network's own adapters are on."""
    return replace(_pass(job, network, micro_batch), tuning=Tuning.FROZEN, autocast=False)


def layer_passes(network: Network, layout: Layout) -> float:
    """Layers on this GPU × micro-batches in flight: what multiplies one layer's kept bytes."""
    layers = stage_layers(network.shape, layout)
    return layers * in_flight_micro_batches(layout).value if layout.pipeline > 1 else layers


def gathered(network: Network, layout: Layout) -> Unsharded | None:
    """Sizes of what FSDP gathers for this network; None when its weights are not divided."""
    if layout.shard not in (Shard.FSDP1, Shard.FSDP2):
        return None
    stored = network.precision.weight_bytes if network.tuning is Tuning.FULL else network.frozen.other_bytes
    if layout.shard_degree == 1 and (layout.shard is Shard.FSDP1 or stored == network.precision.compute_bytes):
        return None  # nothing to gather and nothing to cast
    full = network.tuning is Tuning.FULL
    policy = network.precision
    if layout.pipeline > 1:
        layout = replace(layout, reshard_after_forward=False)  # the next micro-batch needs the stage again at once
    return unsharded(
        network.shape,
        layout,
        block_share=network.frozen.weight_bytes / policy.compute_bytes
        if not full and network.frozen.quantised
        else 1.0,
        compute_bytes=policy.compute_bytes,
        reduce_bytes=policy.reduce_bytes if full else 0,
        stored_bytes=policy.weight_bytes,
        scalar_head=network.scalar_head,
    )
