"""Which activations are alive between forward and backward, and at the backward of one block?

The laws are sums of terms, each the bytes of named tensors: `kept_per_block` is what one block keeps, `live_block` what
its backward holds at most. Measured on PyTorch 2.13 fake tensors (tests/ground_truth).
"""

from __future__ import annotations

from headcount.estimate.adapter_activations import adapters_kept
from headcount.estimate.attention_activations import attention_kept, context_exchange
from headcount.estimate.backward_activations import backward_hump
from headcount.estimate.forward_pass import Pass
from headcount.estimate.mlp_activations import mlp_kept
from headcount.estimate.no_grad_activations import no_grad_block
from headcount.estimate.norm_activations import block_norms, final_norm, input_kept_by_norm
from headcount.estimate.parameters import Kind, block_tensors
from headcount.facts.model_shape import Block, DenseMlp, ModelShape, Norm
from headcount.job.job import AttentionKernel, Checkpointing
from headcount.ledger.derivation import Derived, derive, total

__all__ = [
    "Pass",
    "backward_hump",
    "checkpoints",
    "context_exchange",
    "final_norm",
    "final_norm_backward",
    "held_masks",
    "kept_blocks",
    "kept_per_block",
    "live_block",
    "no_grad_trunk",
    "residual_bytes",
    "residual_gradient",
    "rotary_tables",
    "scalar_head_hump",
    "selective_kept",
    "sequence_parallel_gathers",
    "trunk",
]  # fmt: skip

_SOURCE = "measured on PyTorch 2.13 fake tensors (tests/ground_truth)"


def kept_per_block(block: Block, *, hidden: int, run: Pass) -> dict[str, Derived]:
    """Bytes that one block keeps from its forward to its backward, without checkpointing."""
    terms = block_norms(block, hidden=hidden, run=run)
    terms |= attention_kept(block, run=run)
    terms |= mlp_kept(block, hidden=hidden, run=run)
    terms |= adapters_kept(block, hidden=hidden, run=run)
    if run.autocast and run.full:
        terms["16-bit copies of the weights"] = _cast_weights(block, hidden=hidden, run=run)
    return terms


def _cast_weights(block: Block, *, hidden: int, run: Pass) -> Derived:
    """Autocast casts every linear weight once and keeps the copy until backward."""
    linears = sum(t.numel for t in block_tensors(block, hidden=hidden) if t.kind in (Kind.LINEAR, Kind.EXPERT))
    return derive(
        "linear_parameters ÷ tensor × compute_bytes",
        source=_SOURCE,
        linear_parameters=linears,
        tensor=run.tensor,
        compute_bytes=run.compute_bytes,
    )


def live_block(block: Block, *, hidden: int, run: Pass) -> dict[str, Derived]:
    """What a recomputed block's backward holds beside the checkpoints: kept terms, hump, less its own input."""
    terms = kept_per_block(block, hidden=hidden, run=run)
    terms["gradients inside the block"] = backward_hump(block, hidden=hidden, run=run)
    shared = input_kept_by_norm(block, hidden=hidden, run=run)
    if shared.value:
        terms["input, already a checkpoint"] = derive("−shared", source=_SOURCE, shared=shared.value)
    if run.kernels.reentrant:
        terms["re-entrant copy"] = residual_gradient(hidden, run=run)
    return terms


def checkpoints(shape: ModelShape, *, run: Pass, layer_passes: float | None = None) -> Derived:
    """Block inputs: L·N·h × bytes of the residual stream. Activation offload leaves two in flight."""
    layers = shape.layers if layer_passes is None else layer_passes
    return derive(
        "layers × tokens × hidden × residual_bytes ÷ split",
        source=_SOURCE,
        layers=min(layers, 2) if run.kernels.offload_checkpoints else layers,
        tokens=run.tokens,
        hidden=shape.hidden,
        residual_bytes=residual_bytes(run),
        split=run.residual_split,
    )


def residual_bytes(run: Pass) -> int:
    """Of the residual stream: fp32 under autocast or after k-bit preparation, else the compute dtype."""
    return 4 if run.autocast else max(run.compute_bytes, run.kernels.residual_bytes)


def kept_blocks(shape: ModelShape, *, run: Pass, layer_passes: float | None = None) -> Derived:
    """All blocks' kept bytes: what lives under the logits without checkpointing."""
    whole = sum(count * _kept(block, shape.hidden, run) for count, block in shape.blocks)
    layers = shape.layers if layer_passes is None else layer_passes
    return derive("layers × bytes_per_layer", source=_SOURCE, layers=layers, bytes_per_layer=whole / shape.layers)


def _kept(block: Block, hidden: int, run: Pass) -> float:
    terms = kept_per_block(block, hidden=hidden, run=run)
    if run.kernels.checkpointing in (Checkpointing.SELECTIVE, Checkpointing.SELECTIVE_SECOND):
        terms = selective_kept(block, hidden=hidden, run=run)
    if run.kernels.checkpointing is Checkpointing.SELECTIVE_ATTENTION:
        terms.pop("attention probabilities", None)
    return total(terms)


def selective_kept(block: Block, *, hidden: int, run: Pass) -> dict[str, Derived]:
    """Selective checkpointing that keeps the outputs of every matmul and of attention, and the block's input."""
    linears = (t for t in block_tensors(block, hidden=hidden) if t.kind in (Kind.LINEAR, Kind.EXPERT))
    share = block.mlp.active / block.mlp.experts if not isinstance(block.mlp, DenseMlp) else 1.0
    if run.kernels.checkpointing is Checkpointing.SELECTIVE_SECOND:
        linears = tuple(linears)[::2]  # q, v, gate, down of Llama: the first of every two, in the order they run
    outputs = sum(t.rows * t.copies * (share if t.kind is Kind.EXPERT else 1) for t in linears)
    formula = "tokens × (compute_bytes × (hidden + matmul_outputs + attention_output) + 4 × heads) ÷ tensor"
    kept = derive(
        formula,
        source="outputs the policy keeps, counted; block input; attention output and its log-sum-exp",
        tokens=run.tokens,
        compute_bytes=run.compute_bytes,
        hidden=hidden,
        matmul_outputs=outputs,
        attention_output=block.attention.o_width,
        heads=block.attention.heads,
        tensor=run.tensor,
    )
    return {"matmul outputs": kept}


def rotary_tables(shape: ModelShape, *, run: Pass) -> Derived:
    """cos and sin of one row and the positions: 2·T·d·s + 8·T; nothing with learned positions."""
    attention = shape.block(0).attention
    return derive(
        "row_tokens × (2 × rotary_dim × compute_bytes + 8)",
        source=_SOURCE,
        row_tokens=0 if shape.learned_positions else run.keys / run.context,
        rotary_dim=attention.rope_head_dim or attention.head_dim,
        compute_bytes=run.compute_bytes,
    )


def trunk(shape: ModelShape, *, run: Pass, layer_passes: float | None = None) -> dict[str, Derived]:
    """What all blocks keep under the logits: checkpoints or every block, and the rotary tables.

    `layer_passes` is layers on this GPU × micro-batches in flight (pipeline); None: all layers, one micro-batch.
    """
    if run.kernels.checkpointing is Checkpointing.FULL:
        kept = {"checkpoints": checkpoints(shape, run=run, layer_passes=layer_passes)}
        masks = held_masks(shape, run=run)
        if masks.value:
            kept["attention masks"] = masks
    else:
        kept = {"kept blocks": kept_blocks(shape, run=run, layer_passes=layer_passes)}
    if run.adapter is not None and not _embedding_is_checkpoint(shape, run):
        # enable_input_require_grads makes the embedding's output a leaf: it lives as long as the graph.
        kept["embedding output"] = residual_gradient(shape.hidden, run=run)
    return kept | {"rotary tables": rotary_tables(shape, run=run)}


def _embedding_is_checkpoint(shape: ModelShape, run: Pass) -> bool:
    """Does the embedding's output enter the first block as it is, and is it kept there already?"""
    changed = shape.learned_positions > 0 or shape.embed_scaled or shape.embed_norm
    return run.kernels.checkpointing is Checkpointing.FULL and not changed


def residual_gradient(hidden: int, *, run: Pass) -> Derived:
    """The gradient that travels down the residual stream: N·h·s."""
    return derive(
        "tokens × hidden × residual_bytes ÷ split",
        source=_SOURCE,
        tokens=run.tokens,
        hidden=hidden,
        residual_bytes=residual_bytes(run),
        split=run.residual_split,
    )


def sequence_parallel_gathers(hidden: int, *, run: Pass, tensors: int) -> Derived:
    """Full-width tensors that sequence parallelism gathers: 3 in the block at work, 2 at the head."""
    return derive(
        "tensors × tokens × hidden × compute_bytes",
        source="all-gathered input, its gradient and the reduce-scatter's input",
        tensors=tensors if run.sequence_parallel and run.tensor > 1 else 0,
        tokens=run.tokens,
        hidden=hidden,
        compute_bytes=run.compute_bytes,
    )


def scalar_head_hump(shape: ModelShape, *, run: Pass) -> Derived:
    """Critic or reward model at the top of its backward: the final norm or the last block: N·max(24h, 2sf + sh)."""
    return derive(
        "max(final_norm, last_block)",
        source=_SOURCE,
        final_norm=final_norm_backward(shape, run=run).value,
        last_block=backward_hump(shape.block(-1), hidden=shape.hidden, run=run).value,
    )


def no_grad_trunk(shape: ModelShape, *, run: Pass) -> Derived:
    """A forward without gradient: the widest block at work, and rotary tables. Llama: N·s(3f + 4h) + 2·T·d·s + 8·T."""
    blocks = (no_grad_block(block, hidden=shape.hidden, run=run) for _, block in shape.blocks)
    return derive(
        "widest_block + rotary_tables + masks",
        source=_SOURCE,
        widest_block=max(block.value for block in blocks),
        rotary_tables=rotary_tables(shape, run=run).value,
        masks=held_masks(shape, run=run).value,
    )


def final_norm_backward(shape: ModelShape, *, run: Pass) -> Derived:
    """The final norm's backward, when the logits have gone: five fp32 temporaries, input and gradient: 24h a token.

    It leads only under a narrow vocabulary or a scalar head. LayerNorm: 3·s·h.
    """
    layer = shape.norm in (Norm.LAYER, Norm.LAYER_PLAIN)
    return derive(
        "tokens × bytes_per_feature × hidden ÷ split",
        source=_SOURCE,
        tokens=run.tokens,
        bytes_per_feature=3 * run.compute_bytes if layer else 24,
        hidden=shape.hidden,
        split=run.residual_split,
    )


def held_masks(shape: ModelShape, *, run: Pass) -> Derived:
    """Masks that checkpointed blocks hold as arguments, one a window: B·T² × s (eager) or × 1 (sdpa: boolean)."""
    attentions = {block.attention.window: block.attention for _, block in shape.blocks}.values()
    eager = [a for a in attentions if run.attention_kernel(a) is AttentionKernel.EAGER]
    boolean = [a for a in attentions if a not in eager and run.masked(a)]
    return derive(
        "rows × queries × keys × (eager_masks × compute_bytes + boolean_masks)",
        source=_SOURCE,
        rows=run.rows,
        queries=run.keys / run.context,
        keys=run.keys,
        eager_masks=len(eager),
        compute_bytes=run.compute_bytes,
        boolean_masks=len(boolean),
    )
