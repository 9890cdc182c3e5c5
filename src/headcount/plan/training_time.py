"""How long do one network's update and its frozen passes take on the job's layout?"""

from __future__ import annotations

from dataclasses import replace
from math import ceil

from headcount.estimate.parameters import parameters
from headcount.estimate.training import (
    Passes,
    Spread,
    Training,
    forward_seconds,
    passes_of,
    step_seconds,
    time_of,
    training_of,
)
from headcount.facts.recipe import recipes
from headcount.facts.training_speed import TrainingSpeed, training_speed
from headcount.job.job import Checkpointing, Job, MicroBatch, Network, RowLayout, Tuning
from headcount.job.layout import Layout
from headcount.ledger.predicted import Band
from headcount.plan.residents import trained_parameters

__all__ = ["no_grad_s", "optimizer_steps", "unseen", "update_parts", "update_s", "wire_share"]

# Share of a forward that the backward repeats.
_RECOMPUTE = {
    Checkpointing.NONE: 0.0,
    Checkpointing.SELECTIVE_ATTENTION: 0.1,
    Checkpointing.SELECTIVE: 0.3,
    Checkpointing.SELECTIVE_SECOND: 0.4,
    Checkpointing.FULL: 1.0,
}
_FUSED_ELEMENT = (
    0.75  # Liger-class norms and activations move three quarters of the bytes (knowledge of published pairs)
)
_NF4_PASS_BYTES = 2.5  # a pass reads half a byte, writes and reads two
_ONE_MEASURED = (0.93, 1.08)  # 80 % of rows whose trainer has one other measured row (scripts/fit_training)
_OPTIMIZER_BYTES = 6  # read and write of gradients and 16-bit weights beside the state


def optimizer_steps(job: Job) -> int:
    """Optimizer steps of one step of the job."""
    if not job.algorithm.online:
        return 1
    return ceil(job.work.rows_per_step / job.work.mini_batch_rows) * job.work.passes


def update_s(job: Job, network: Network) -> Band:
    """All optimizer steps of one step of the job, for one network."""
    speed = _speed(job, network)
    seconds = (step_seconds(_update_work(job, network), speed) + _offload_s(job, network)) * optimizer_steps(job)
    return _refitted(job, network, seconds) or _band(seconds, speed)


def update_parts(job: Job, network: Network) -> str:
    """Where an optimizer step's seconds go, as the model has them: `products 61 %, element-wise 17 %, …`."""
    time = time_of(_update_work(job, network), _speed(job, network), step=True)
    parts = {
        "products": time.products, "attention": time.attention, "element-wise": time.element_wise,
        "waits for other GPUs": time.communication, "late launches": time.launches, "pipeline bubble": time.bubble,
        "optimizer": time.optimizer,
    }  # fmt: skip
    shares = {name: band.p50 / time.total.p50 for name, band in parts.items()}
    return ", ".join(f"{name} {share:.0%}" for name, share in shares.items() if share >= 0.005)


def _update_work(job: Job, network: Network) -> Training:
    """One optimizer step of one network."""
    passes = passes_of(full=network.tuning is Tuning.FULL, recompute=_RECOMPUTE[job.kernels.checkpointing])
    return _training(job, network, job.update, rows=_update_rows(job), passes=passes)


def _update_rows(job: Job) -> float:
    """Rows of one optimizer step; a pair is two."""
    return job.work.mini_batch_rows * job.work.group_size * (2 if job.algorithm.pairs else 1)


def _refitted(job: Job, network: Network, seconds: float) -> Band | None:
    """The policy's update as the user saw it; other networks by the same factor."""
    seen = job.observed.train_tokens_per_s_per_gpu
    if seen is None:
        return None
    if network is not job.policy:
        seconds *= update_s(job, job.policy).p50 / _own_update_s(job)
    else:
        seconds = (
            _update_rows(job) * job.lengths.row_mean * optimizer_steps(job) / (seen * job.layouts[network.group].gpus)
        )
    low, high = _ONE_MEASURED
    return Band(seconds * low, seconds, seconds * high)


def _own_update_s(job: Job) -> float:
    return update_s(unseen(job), job.policy).p50


def unseen(job: Job) -> Job:
    """The job without the training rate that its user measured."""
    return replace(job, observed=replace(job.observed, train_tokens_per_s_per_gpu=None))


def wire_share(job: Job, network: Network) -> float:
    """Share of one optimizer step in which bytes between GPUs are waited for."""
    speed, work = _speed(job, network), _update_work(job, network)
    silent = replace(work, tensor_wire_s=0.0, context_wire_s=0.0, stage_wire_s=0.0, shard_wire_s=0.0,
                     gradient_wire_s=0.0, near_s=0.0, far_s=0.0)  # fmt: skip
    return 1 - step_seconds(silent, speed) / step_seconds(work, speed)


def no_grad_s(job: Job, network: Network, *, rows: float) -> Band:
    """One forward over `rows` rows of mean length."""
    speed = _speed(job, network)
    passes = passes_of(full=True, recompute=0.0, gradient=False)
    work = _training(job, network, job.score, rows=rows, passes=passes)
    return _band(forward_seconds(work, speed), speed)


def _band(seconds: float, speed: TrainingSpeed) -> Band:
    low, high = speed.spread
    return Band(seconds * low, seconds, seconds * high)


def _speed(job: Job, network: Network) -> TrainingSpeed:
    recipe = recipes()[job.recipe.partition("@")[0]]
    framework = "fsdp" if recipe.speed in ("hf", "fsdp-eager") and job.kernels.compiled else recipe.speed
    # What an RL step costs over plain training was fitted with its trainers' own spread in it.
    measured = recipe.speed_measured or job.algorithm.online
    speed = training_speed(job.gpu.architecture, _units(job), framework, mixture=network.shape.moe, measured=measured)
    fused = job.kernels.fused_norm and job.kernels.fused_mlp
    return replace(speed, element=speed.element * _FUSED_ELEMENT) if fused else speed


def _units(job: Job) -> str:
    """Linears run in 16 bits: brain floats where the card has them."""
    return "bf16" if "bf16" in job.gpu.flops_per_s else "fp16"


def _training(job: Job, network: Network, micro: MicroBatch, *, rows: float, passes: Passes) -> Training:
    """`rows` rows of mean length over the data ranks, in micro-batches as large as memory was planned for."""
    layout = job.layouts[network.group]
    tokens, micro_batches = _micro_batches(job, micro, rows / max(1, layout.data))
    trained = trained_parameters(network) / parameters(network.shape, scalar_head=network.scalar_head)
    policy, optimizer = network.precision, network.optimizer
    moment = policy.moment_bytes if optimizer.moment_bytes is None else optimizer.moment_bytes
    state = policy.weight_bytes + policy.master_bytes + optimizer.moments * moment
    quantised = network.tuning is Tuning.QLORA
    return training_of(
        network.shape,
        job.gpu,
        job.fabric,
        _spread(layout, micro_batches, gradient=passes.backward > 0),
        passes,
        tokens=tokens,
        row_tokens=job.lengths.row_mean,
        precision=_units(job),
        optimizer_bytes=2 * state + _OPTIMIZER_BYTES,
        trained=trained if network.trainable else 0.0,
        gradient_bytes=policy.reduce_bytes,
        scalar_head=network.scalar_head,
        dequantised_bytes=_NF4_PASS_BYTES * parameters(network.shape) if quantised else 0.0,
    )


def _micro_batches(job: Job, micro: MicroBatch, rows: float) -> tuple[float, int]:
    """(tokens of a micro-batch at the mean length, how many a rank runs)."""
    mean = job.lengths.row_mean
    if micro.rows is RowLayout.PACKED:
        count = max(1, ceil(rows * mean / micro.tokens))
        return max(1.0, rows * mean / count), count
    count = max(1, ceil(rows / micro.sequences))
    return max(1.0, rows / count * mean), count


def _spread(layout: Layout, micro_batches: int, *, gradient: bool) -> Spread:
    """The layout in the terms of the time model; naive layer splits run one after the other, as one GPU would."""
    freed = layout.reshard_after_forward or layout.offload_parameters
    return Spread(
        data=max(1, layout.data),
        tensor=layout.tensor,
        pipeline=layout.pipeline,
        virtual_pipeline=layout.virtual_pipeline,
        context=layout.context,
        expert=layout.expert,
        sharded=layout.shard.divides_weights and layout.shard_degree > 1,
        gathers=2 if gradient and freed else 1,
        micro_batches=micro_batches,
    )


def _offload_s(job: Job, network: Network) -> float:
    """Gradients to the host, the step there, weights back; every micro-batch fetches offloaded weights."""
    layout, gpu = job.layouts[network.group], job.gpu
    if not (layout.offload_optimizer or layout.offload_parameters) or gpu.pcie_bytes_per_s is None:
        return 0.0
    numbers = trained_parameters(network) / max(1, layout.model_parallel * layout.shard_degree)
    policy = network.precision
    moved = numbers * (policy.gradient_bytes + policy.compute_bytes) if layout.offload_optimizer else 0.0
    stepped = numbers * 28 / _HOST_BYTES_PER_S if layout.offload_optimizer else 0.0
    return moved / gpu.pcie_bytes_per_s + stepped


_HOST_BYTES_PER_S = (
    25e9  # one GPU's share of a host's memory bandwidth while its CPU steps (assumed: 8 channels, 8 GPUs)
)
