"""Which bytes are alive at each instant of an update: forward, logits, backward, reduce, optimizer step?

The peak is the largest of a few moments. Without checkpointing all blocks lie under the logits; with it the logits are
gone before the first block is recomputed, so logits and block compete and never add.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from headcount.estimate import activations, logits, sharding
from headcount.estimate.activations import Pass
from headcount.estimate.attention_activations import context_exchange
from headcount.estimate.model_state import dequantised_copy
from headcount.estimate.parameters import block_parameters, parameters
from headcount.estimate.sharding import Unsharded
from headcount.facts.model_shape import AttentionKind, Block, ModelShape
from headcount.job.job import Checkpointing, Job, Loss, Network, Tuning
from headcount.job.layout import ContextExchange, Layout, Shard
from headcount.ledger.derivation import Derived, derive
from headcount.ledger.predicted import Moment, Row
from headcount.plan.passes import gathered, layer_passes, update_pass
from headcount.plan.state_rows import gradient_row, step_row, trained
from headcount.vocabulary import Basis, Phase

__all__ = ["update_moments"]

_FALLS_SHORT = "adapters on latent attention: steps traced in tests/ground_truth peak 2 to 4 % higher"
_ACTIVATION = ("micro-batch", "context")
_HEAD_GRADIENT_FROM_THE_START = (Loss.CHUNKED, Loss.CHUNKED_KEPT, Loss.FUSED_LINEAR)


@dataclass(frozen=True, kw_only=True, slots=True)
class _Update:
    """One network's update on one GPU: the pieces that moments are put together from."""

    network: Network
    layout: Layout
    run: Pass
    sizes: Unsharded | None
    resting: tuple[Row, ...]

    @property
    def shape(self) -> ModelShape:
        return self.network.shape

    @property
    def full(self) -> bool:
        return self.network.tuning is Tuning.FULL

    @property
    def checkpointed(self) -> bool:
        return self.run.kernels.checkpointing is Checkpointing.FULL

    @property
    def adapters_fall_short(self) -> bool:
        """Adapters on latent attention hold a little more than the laws say."""
        return self.network.adapter is not None and self.shape.block(-1).attention.kind is AttentionKind.MLA

    def row(self, item: str, amount: Derived, **more: Any) -> Row:
        return Row(phase=Phase.UPDATE, role=self.network.role, item=item, amount=amount, **more)

    def activation(self, item: str, amount: Derived, *reads: str, tensor: bool = False, **more: Any) -> Row:
        shrinks = (*_ACTIVATION, "tensor") if tensor else _ACTIVATION
        if tensor and self.adapters_fall_short:
            more = {"basis": Basis.ASSUMED, "spread": (1.0, 1.1), "note": _FALLS_SHORT} | more
        return self.row(item, amount, shrinks_with=shrinks, reads=("update.micro_batch", *reads), **more)

    def moment(self, name: str, rows: Iterator[Row]) -> Moment:
        alive = (row for row in (*self.resting, *rows) if row.amount.value)
        return Moment(phase=Phase.UPDATE, name=name, acting=self.network.role, rows=tuple(alive))


def update_moments(job: Job, network: Network, resting: list[Row]) -> Iterator[Moment]:
    """Every moment of one network's update. `resting` are the rows of all networks at rest in this phase."""
    layout = job.layouts[network.group]
    update = _Update(
        network=network,
        layout=layout,
        run=update_pass(job, network),
        sizes=gathered(network, layout),
        resting=tuple(resting),
    )
    if update.sizes is not None:
        yield update.moment("forward", _forward(update))
    top = "scalar head" if network.scalar_head else "logits"
    yield update.moment(top, _top(update))
    if not network.scalar_head:
        yield update.moment("final norm backward", _final_norm(update))
    yield update.moment("last block backward", _block_backward(update, first=False))
    yield update.moment("first block backward", _block_backward(update, first=True))
    yield update.moment("end of backward", _end_of_backward(update))
    yield update.moment("optimizer step", _optimizer_step(update))


def _forward(update: _Update) -> Iterator[Row]:
    assert update.sizes is not None
    yield from _kept(update)
    yield _gathered(update, sharding.fsdp_forward(update.sizes))


def _kept(update: _Update, *, layers: float | None = None) -> Iterator[Row]:
    """Checkpoints, or every block's kept activations, and the rotary tables."""
    passes = layer_passes(update.network, update.layout) if layers is None else layers
    for item, amount in activations.trunk(update.shape, run=update.run, layer_passes=passes).items():
        terms = ()
        if item == "kept blocks":
            block = update.shape.block(0)
            terms = tuple(activations.kept_per_block(block, hidden=update.shape.hidden, run=update.run).items())
        yield update.activation(
            item, amount, "update.gradient_checkpointing", "update.attention", tensor=item == "kept blocks", terms=terms
        )
    if update.network.tuning is Tuning.QLORA:
        yield update.row(
            "dequantised copy",
            dequantised_copy(update.shape),
            note="16-bit copy of the linear at work",
            reads=("policy.base_precision",),
        )


def _top(update: _Update) -> Iterator[Row]:
    """Under the head: all that was kept, the final norm, logits and their gradients."""
    yield from _kept(update)
    yield from _standing_gradients(update)
    if update.network.scalar_head:
        hump = activations.scalar_head_hump(update.shape, run=update.run)
        yield update.activation("scalar head and last norm", hump)
    else:
        norm = activations.final_norm(update.shape, update.run)
        yield update.activation("final norm and head input", norm)
        if update.run.residual_split > 1:
            yield update.activation("gradient of the gathered head input", _full_width(update))
        yield _logits_row(update, logits.peak_logits(update.shape, run=update.run))
        if update.full and update.run.kernels.loss in _HEAD_GRADIENT_FROM_THE_START:
            yield _head_gradient(update)
    if update.sizes is not None:
        yield _gathered(update, sharding.fsdp_logits(update.sizes))


def _final_norm(update: _Update) -> Iterator[Row]:
    """The logits have gone, the blocks have not begun: leads under a narrow vocabulary or few completion tokens."""
    yield from _kept(update)
    yield from _standing_gradients(update)
    amount = activations.final_norm_backward(update.shape, run=update.run)
    yield update.activation("final norm at work", amount)
    if update.full:
        yield _head_gradient(update)
    if update.sizes is not None:
        yield _gathered(update, sharding.fsdp_logits(update.sizes))


def _full_width(update: _Update) -> Derived:
    """Under sequence parallelism the head reads a gathered input; its gradient is as wide until it is reduced."""
    return derive(
        "logit_tokens × hidden × compute_bytes",
        source="Megatron's sequence parallelism, arXiv:2205.05198: g gathers in forward, reduce-scatters in backward",
        logit_tokens=update.run.logit_tokens,
        hidden=update.shape.hidden,
        compute_bytes=update.run.compute_bytes,
    )


def _logits_row(update: _Update, amount: Derived, item: str = "logits") -> Row:
    return update.activation(item, amount, "update.loss_implementation", basis=Basis.EXACT)


def _head_gradient(update: _Update) -> Row:
    amount = logits.head_gradient(update.shape, run=update.run)
    return update.row("head gradient", amount, shrinks_with=("tensor",), note="whole until it is reduced")


def _gathered(update: _Update, amount: Derived) -> Row:
    return update.row(
        "gathered weights",
        amount,
        shrinks_with=("tensor", "expert"),
        reads=("layout.reshard_after_forward", "layout.root_split"),
        note="FSDP: the root group and the blocks at work, whole on every GPU",
    )


def _standing_gradients(update: _Update) -> Iterator[Row]:
    """Gradients that stand before this backward began: accumulated ones, and the buckets of DDP and ZeRO."""
    if update.run.kernels.accumulate and not update.run.kernels.optimizer_in_backward:
        yield gradient_row(update.network, update.layout, note="accumulated over micro-batches")
    if update.sizes is not None and update.layout.pipeline > 1 and update.full:
        yield _whole_stage_gradients(update, update.sizes)
    yield from _buckets(update)


def _whole_stage_gradients(update: _Update, sizes: Unsharded) -> Row:
    """FSDP2 under a pipeline reduces after the last micro-batch: until then the stage's gradients are whole."""
    amount = derive(
        "layers × block × reduce_bytes",
        source="FSDP2 set_requires_gradient_sync(False) between the micro-batches of a pipeline",
        layers=sizes.layers,
        block=sizes.block,
        reduce_bytes=sizes.reduce_bytes,
    )
    return update.row("unsharded gradients", amount, shrinks_with=("tensor", "pipeline"))


def _buckets(update: _Update) -> Iterator[Row]:
    numbers = trained(update.network, update.layout)
    layout, precision = update.layout, update.network.precision
    if layout.shard is Shard.DDP and layout.data > 1:
        amount = sharding.ddp_buckets(numbers, gradient_bytes=precision.gradient_bytes)
        yield update.row("gradient buckets", amount, note="DDP's copy of every gradient", reads=("layout.shard",))
    if layout.shard in (Shard.ZERO2, Shard.ZERO3):
        amount = sharding.zero_buckets(layout, numbers=numbers, compute_bytes=precision.compute_bytes)
        yield update.row("ZeRO buckets", amount, basis=Basis.DATASHEET, spread=(0.3, 1.0), reads=("layout.shard",))
    if layout.shard is Shard.ZERO3:
        amount = sharding.zero3_live_parameters(update.shape, compute_bytes=precision.compute_bytes)
        yield update.row(
            "ZeRO-3 live parameters", amount, basis=Basis.DATASHEET, spread=(0.3, 1.0), reads=("layout.shard",)
        )


def _block_backward(update: _Update, *, first: bool) -> Iterator[Row]:
    """One block runs backward: the last, under all checkpoints; or the first, above nearly all gradients."""
    layers = layer_passes(update.network, update.layout)
    yield from _kept(update, layers=1 if first else layers)
    block = update.shape.block(0 if first else -1)
    hidden, run = update.shape.hidden, update.run
    if update.checkpointed:
        terms = activations.live_block(block, hidden=hidden, run=run)
        amount = _summed("live block", terms)
    else:
        terms = {}
        amount = activations.backward_hump(block, hidden=hidden, run=run)
    item = "live block" if update.checkpointed else "gradients inside the block"
    yield update.activation(item, amount, "update.attention", tensor=True, terms=tuple(terms.items()))
    yield from _exchanged(update, block)
    if update.checkpointed and not update.full and update.layout.shard is Shard.FSDP1 and update.sizes is not None:
        yield _earlier_block(update, terms)
    yield from _gradients_so_far(update, first=first)
    yield from _buckets(update)
    if update.sizes is not None:
        layer = 0 if first else update.sizes.layers - 1
        yield _gathered(update, sharding.fsdp_backward(update.sizes, layer=layer))


def _exchanged(update: _Update, block: Block) -> Iterator[Row]:
    """What parallel ranks hand each other at the block at work: gathered sequences, other ranks' keys and values."""
    wide = activations.sequence_parallel_gathers(update.shape.hidden, run=update.run, tensors=3)
    yield update.activation("gathered sequence", wide, "layout.sequence_parallel")
    exchange = update.layout.context_exchange
    amount = context_exchange(block, run=update.run, exchange=exchange)
    whole = exchange is ContextExchange.ALL_GATHER
    yield update.row(
        "exchanged keys and values",
        amount,
        shrinks_with=("micro-batch", "tensor") if whole else (*_ACTIVATION, "tensor"),
        reads=("layout.context_exchange",),
    )


def _earlier_block(update: _Update, terms: dict[str, Derived]) -> Row:
    """FSDP1 with adapters in units of their own: the block recomputed before stays alive, its experts excepted."""
    dense = {name: term for name, term in terms.items() if name not in ("experts", "router")}
    if update.shape.moe:
        dense.pop("gradients inside the block", None)
    return update.activation(
        "block before",
        _summed("block before", dense),
        "layout.shard",
        tensor=True,
        basis=Basis.CALIBRATED,
        spread=(0.5, 1.1),
        note="seen in published FSDP1 LoRA runs with checkpointing, not from first principles",
    )


def _summed(name: str, terms: dict[str, Derived]) -> Derived:
    """A named sum whose terms are shown one by one."""
    return Derived(sum(term.value for term in terms.values()), f"sum of the terms of the {name}")


def _gradients_so_far(update: _Update, *, first: bool) -> Iterator[Row]:
    """Before the last block runs backward only the head has a gradient; before the first, all but embedding and it."""
    if update.run.kernels.optimizer_in_backward:
        if not update.network.scalar_head and update.full:
            yield _head_gradient(update)
        return
    if update.run.kernels.accumulate:
        yield gradient_row(update.network, update.layout, note="accumulated over micro-batches")
        return
    if first:
        done = _part_before_first_block(update)
        yield gradient_row(update.network, update.layout, part=done, note="of all later blocks and the head")
    elif update.full and not update.network.scalar_head:
        yield _head_gradient(update)


def _part_before_first_block(update: _Update) -> float:
    """Share of the trained numbers whose gradients exist when the first block starts its backward."""
    if not update.full:
        return 1 - 1 / update.shape.layers
    shape = update.shape
    whole = parameters(shape, scalar_head=update.network.scalar_head)
    waiting = block_parameters(shape.block(0), hidden=shape.hidden) + shape.learned_positions * shape.hidden
    if update.network.scalar_head or not shape.tied:
        waiting += shape.vocab * shape.hidden  # a tied table already holds the head's share
    return max(0.0, 1 - waiting / whole)


def _end_of_backward(update: _Update) -> Iterator[Row]:
    """All gradients and the embedding's input gradient; a tied head meets the embedding's share and their sum."""
    if not update.run.kernels.optimizer_in_backward:
        yield gradient_row(update.network, update.layout)
    amount = activations.residual_gradient(update.shape.hidden, run=update.run)
    yield update.activation("residual gradient", amount)
    if update.full and update.shape.tied and not update.network.scalar_head:
        twice = derive(
            "2 × vocabulary × hidden × compute_bytes",
            source="measured on PyTorch 2.13: the head's share waits through backward, then meets the embedding's",
            vocabulary=update.shape.vocab,
            hidden=update.shape.hidden,
            compute_bytes=update.run.compute_bytes,
        )
        yield update.row("tied head's gradient", twice, shrinks_with=("tensor",))
    yield from _buckets(update)
    if update.sizes is not None and update.full:
        yield _gathered(update, sharding.fsdp_end(update.sizes))


def _optimizer_step(update: _Update) -> Iterator[Row]:
    if update.layout.offload_optimizer or update.run.kernels.optimizer_in_backward:
        return
    yield gradient_row(update.network, update.layout)
    yield step_row(update.network, update.layout)
