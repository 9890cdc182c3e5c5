"""What does a normalisation keep between forward and backward?

Measured on PyTorch 2.13 fake tensors (tests/ground_truth); per token of this rank.
"""

from __future__ import annotations

from headcount.estimate.forward_pass import Pass, attention_inputs
from headcount.facts.model_shape import Block, DenseMlp, ModelShape, MoeMlp, Norm
from headcount.ledger.derivation import Derived, derive

__all__ = ["block_norms", "final_norm", "input_kept_by_norm", "multiplies_in_fp32", "norm_statistics"]

_LAYER = (Norm.LAYER, Norm.LAYER_PLAIN)
_SOURCE = "measured on PyTorch 2.13 fake tensors (tests/ground_truth)"


def block_norms(block: Block, *, hidden: int, run: Pass) -> dict[str, Derived]:
    """The block's norms and the inputs of the linears that read them."""
    fp32_weight = multiplies_in_fp32(block)
    terms = {"norms": norm_statistics(block.norm, hidden=hidden, count=block.norms, run=run, fp32_weight=fp32_weight)}
    if block.parallel and block.norms == 2 and block.norm in _LAYER:
        terms["input that both norms share"] = derive(
            "−tokens × hidden × compute_bytes",
            source=_SOURCE,
            tokens=run.tokens / run.residual_split,
            hidden=hidden,
            compute_bytes=run.compute_bytes,
        )
    inputs = linear_inputs(block, hidden=hidden, run=run)
    if inputs.value:
        terms["inputs of the linears"] = inputs
    return terms


def multiplies_in_fp32(block: Block) -> bool:
    """Gemma, OLMo 2 and gpt-oss multiply by the norm's weight before they cast down."""
    return block.norm is Norm.RMS_PLUS_ONE or block.post_norm or block.attention.sinks


def norm_statistics(norm: Norm, *, hidden: int, count: int, run: Pass, fp32_weight: bool = False) -> Derived:
    """What norms keep for themselves.

    RMSNorm: fp32 input, 1/rms (4 bytes) and, when its weight trains, the normalised value (fp32 when the weight
    multiplies in fp32). Gemma adds the fp32 1 + w. LayerNorm: its input, mean and 1/std. Fused: its input and 1/rms.
    """
    s = run.compute_bytes
    numbers = {"tokens": run.tokens / run.residual_split, "norms": count, "hidden": hidden}
    if norm in _LAYER:
        each = s if run.on_cpu else 4
        formula = "norms × tokens × (compute_bytes × hidden + 2 × statistic_bytes)"
        return derive(formula, source=_SOURCE, **numbers, compute_bytes=s, statistic_bytes=each)
    if run.kernels.fused_norm or run.kernels.compiled:
        formula = "norms × tokens × (compute_bytes × hidden + 4)"
        return derive(formula, source="one kernel keeps its input and 1/rms", **numbers, compute_bytes=s)
    wide = fp32_weight or run.autocast or norm is Norm.RMS_PLUS_ONE
    normalised = (4 if wide else s) if run.full else 0
    constants = hidden if norm is Norm.RMS_PLUS_ONE else 0
    return derive(
        "norms × (tokens × ((4 + normalised_bytes) × hidden + 4) + 4 × constants)",
        source=_SOURCE,
        **numbers,
        normalised_bytes=normalised,
        constants=constants,
    )


def linear_inputs(block: Block, *, hidden: int, run: Pass) -> Derived:
    """The 16-bit inputs of q, k, v and of gate, up: one shared copy each, or one per linear under autocast."""
    return derive(
        "input_copies × tokens × hidden × compute_bytes",
        source=_SOURCE,
        input_copies=_input_copies(block, run),
        tokens=run.tokens / run.residual_split,
        hidden=hidden,
        compute_bytes=run.compute_bytes,
    )


def _input_copies(block: Block, run: Pass) -> int:
    readers = (attention_inputs(block), _mlp_inputs(block))
    if run.autocast and run.full:
        return sum(len(names) for names in readers)
    if block.norms == 1:  # one norm feeds attention and MLP
        return int(run.keeps_input(*readers[0], *readers[1]))
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

    An fp32 RMSNorm, a fused one and a LayerNorm keep the residual itself (OLMo 2: its linears do); a 16-bit RMSNorm
    keeps an fp32 copy of it.
    """
    linears = block.post_norm and run.keeps_input(*attention_inputs(block))
    itself = block.norm in _LAYER or linears or run.compute_bytes == 4 or run.kernels.fused_norm or run.kernels.compiled
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
    own = norm_statistics(
        shape.norm, hidden=shape.hidden, count=1, run=run, fp32_weight=multiplies_in_fp32(shape.block(-1))
    )
    head_input = 0 if scalar_head or not run.full else run.logit_tokens
    return derive(
        "norm + head_input_tokens × hidden × compute_bytes",
        source=_SOURCE,
        norm=own.value,
        head_input_tokens=head_input,
        hidden=shape.hidden,
        compute_bytes=run.compute_bytes,
    )
