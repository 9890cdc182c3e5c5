"""What does a normalisation keep between forward and backward?

Measured on PyTorch 2.13 fake tensors (tests/ground_truth); per token of this rank.
"""

from __future__ import annotations

from headcount.estimate.forward_pass import Pass, attention_inputs
from headcount.facts.model_shape import Block, DenseMlp, ModelShape, MoeMlp, Norm
from headcount.ledger.derivation import Derived, derive

__all__ = ["block_norms", "final_norm", "input_kept_by_norm", "norm_statistics"]

_SOURCE = "measured on PyTorch 2.13 fake tensors (tests/ground_truth)"


def block_norms(block: Block, *, hidden: int, run: Pass) -> dict[str, Derived]:
    """The block's norms and the inputs of the linears that read them."""
    terms = {"norms": norm_statistics(block.norm, hidden=hidden, count=block.norms, run=run)}
    inputs = linear_inputs(block, hidden=hidden, run=run)
    if inputs.value:
        terms["inputs of the linears"] = inputs
    return terms


def norm_statistics(norm: Norm, *, hidden: int, count: int, run: Pass) -> Derived:
    """What norms keep for themselves.

    RMSNorm: fp32 input, 1/rms (4 bytes) and, when its weight trains, the normalised value. Gemma: both copies in fp32
    and the fp32 1 + w. LayerNorm: its input, mean and 1/std. Fused RMSNorm: its input and 1/rms.
    """
    common = {"tokens": run.tokens / run.residual_split, "norms": count, "hidden": hidden}
    if norm in (Norm.LAYER, Norm.LAYER_PLAIN):
        return derive(
            "norms × tokens × compute_bytes × (hidden + 2)", source=_SOURCE, **common, compute_bytes=run.compute_bytes
        )
    if run.kernels.fused_norm or run.kernels.compiled:
        return derive(
            "norms × tokens × (compute_bytes × hidden + 4)",
            source="one kernel keeps its input and 1/rms",
            **common,
            compute_bytes=run.compute_bytes,
        )
    if norm is Norm.RMS_PLUS_ONE:
        weight = 4 if run.full else 0
        return derive(
            "norms × (tokens × ((4 + normalised_bytes) × hidden + 4) + 4 × hidden)",
            source=_SOURCE,
            **common,
            normalised_bytes=weight,
        )
    normalised = (4 if run.autocast else run.compute_bytes) if run.full else 0
    return derive(
        "norms × tokens × ((4 + normalised_bytes) × hidden + 4)", source=_SOURCE, **common, normalised_bytes=normalised
    )


def linear_inputs(block: Block, *, hidden: int, run: Pass) -> Derived:
    """The 16-bit inputs of q, k, v and of gate, up: one shared copy each, or one per linear under autocast."""
    copies = _input_copies(block, run)
    return derive(
        "input_copies × tokens × hidden × compute_bytes",
        source=_SOURCE,
        input_copies=copies,
        tokens=run.tokens / run.residual_split,
        hidden=hidden,
        compute_bytes=run.compute_bytes,
    )


def _input_copies(block: Block, run: Pass) -> int:
    readers = (attention_inputs(block), _mlp_inputs(block))
    if run.autocast and run.full:
        return sum(len(names) for names in readers)
    if block.post_norm:
        return sum(run.keeps_input(*names) for names in readers)
    return sum(run.keeps_input(*names) for names in readers)


def _mlp_inputs(block: Block) -> tuple[str, ...]:
    mlp = block.mlp
    if isinstance(mlp, MoeMlp):
        return ("router",)
    return _dense_inputs(mlp)


def _dense_inputs(mlp: DenseMlp) -> tuple[str, ...]:
    if not mlp.gated:
        return (mlp.up_name,)
    return (mlp.gate_up_name,) if mlp.fused_gate_up else (mlp.gate_name, mlp.up_name)


def input_kept_by_norm(block: Block, *, hidden: int, run: Pass) -> Derived:
    """Of the kept bytes, the block's own input: under checkpointing it is the checkpoint and costs nothing more.

    An fp32 RMSNorm, a fused one and a LayerNorm keep the residual itself; a 16-bit RMSNorm keeps an fp32 copy of it.
    """
    layer = block.norm in (Norm.LAYER, Norm.LAYER_PLAIN)
    itself = layer or run.compute_bytes == 4 or run.kernels.fused_norm or run.kernels.compiled
    return derive(
        "input_is_kept × tokens × hidden × compute_bytes",
        source=_SOURCE,
        input_is_kept=int(itself and not run.autocast),
        tokens=run.tokens / run.residual_split,
        hidden=hidden,
        compute_bytes=run.compute_bytes,
    )


def final_norm(shape: ModelShape, run: Pass, *, scalar_head: bool = False) -> Derived:
    """The final norm and the head's input: N(4h + 4 + s·h) + logit_tokens·h·s for a trained RMSNorm."""
    if not shape.final_norm:
        return derive("0")
    own = norm_statistics(shape.norm, hidden=shape.hidden, count=1, run=run)
    head_input = 0 if scalar_head or not run.full else run.logit_tokens
    return derive(
        "norm + head_input_tokens × hidden × compute_bytes",
        source=_SOURCE,
        norm=own.value,
        head_input_tokens=head_input,
        hidden=shape.hidden,
        compute_bytes=run.compute_bytes,
    )
