"""What does one block's backward hold beyond what its forward kept?

Three instants compete: the gated MLP's gradients, the fp32 temporaries of a norm behind the MLP, and the scores of
eager attention; the largest is the hump. Measured on PyTorch 2.13 fake tensors (tests/ground_truth).
"""

from __future__ import annotations

from math import ceil

from headcount.estimate.adapter_activations import adapted_mlp_gradients
from headcount.estimate.attention_activations import local_heads
from headcount.estimate.forward_pass import Pass
from headcount.estimate.mlp_activations import mlp_kept
from headcount.estimate.norm_activations import multiplies_in_fp32, norm_statistics
from headcount.estimate.parameters import Kind, block_tensors
from headcount.facts.model_shape import Activation, Attention, Block, DenseMlp, MoeMlp
from headcount.job.job import AttentionKernel, Checkpointing
from headcount.ledger.derivation import Derived, derive, total

__all__ = ["backward_hump", "ffn_width"]

_SOURCE = "measured on PyTorch 2.13 fake tensors (tests/ground_truth)"


def backward_hump(block: Block, *, hidden: int, run: Pass) -> Derived:
    """The largest of the three instants, and the residual's gradient N·h·s that all of them hold.

    For Llama: N(2·s·f + s·h), and f·h·s for the first weight gradient.
    """
    instants = {
        "mlp_gradients": _mlp_gradients(block, hidden, run),
        "norm_gradients": _norm_gradients(block, hidden, run),
        "score_gradients": _score_gradients(block, hidden, run),
    }
    residual = run.tokens * hidden * run.compute_bytes / run.residual_split
    formula = "max(mlp_gradients, norm_gradients, score_gradients) + residual_gradient"
    return derive(formula, source=_SOURCE, **instants, residual_gradient=residual)


def ffn_width(block: Block) -> int:
    """f of a dense MLP; of experts the width that one token passes through."""
    mlp = block.mlp
    return mlp.width if isinstance(mlp, DenseMlp) else mlp.active * mlp.width + mlp.shared_width


def _mlp_gradients(block: Block, hidden: int, run: Pass) -> float:
    """Gradients inside the MLP, the last linear's weight gradient; a norm behind the MLP has gone by then."""
    gone = _norms(block, hidden, run, count=1) if _norm_behind(block) else 0.0
    if isinstance(block.mlp, MoeMlp):
        return _expert_gradients(block.mlp, hidden, run) - gone
    adapted = adapted_mlp_gradients(block, hidden=hidden, run=run)
    if adapted is not None:
        return adapted.value - gone
    width = block.mlp.width / run.tensor
    gradients = run.tokens * run.compute_bytes * width * _gradient_copies(block.mlp, run)
    return gradients + _weight_gradient(block, hidden, run) - gone


def _gradient_copies(mlp: DenseMlp, run: Pass) -> float:
    """Three gradients (gate, up, product) come alive and the kept product goes: 2, or 3 where none was kept.

    Ungated the same, one fewer for a plain GELU: its output goes before its gradient comes. Fused or compiled: 1.5.
    """
    if mlp.gated and (run.kernels.fused_mlp or run.kernels.compiled):
        return 1.5
    if mlp.gated:
        return 2 if run.keeps_input(mlp.down_name) else 3
    if mlp.activation is Activation.RELU:
        return 3 if run.adapts(mlp.down_name) else 2
    copies = 1 if mlp.activation in (Activation.GELU, Activation.GELU_TANH) else 2
    return copies if run.keeps_input(mlp.down_name) else copies + 1


def _weight_gradient(block: Block, hidden: int, run: Pass) -> float:
    """Of the last linear, which runs backward first: f·h·s, or all experts' m·h·s."""
    if not run.full:
        return 0.0
    mlp = block.mlp
    numbers = mlp.width if isinstance(mlp, DenseMlp) else mlp.experts * mlp.width
    return numbers * hidden * run.compute_bytes / run.tensor


def _expert_gradients(mlp: MoeMlp, hidden: int, run: Pass) -> float:
    """Spread gradients of the chosen (3kh·s; weights in fp32: kh(12 + s)), or those of wide experts (2km·s − kh·s)."""
    s, k = run.compute_bytes, mlp.active
    fp32 = mlp.fp32_weights or run.kernels.experts_weighted_fp32
    spread = k * hidden * (12 + s) - 8 * k if fp32 else 3 * k * hidden * s
    spread += s * (hidden - 1) if mlp.shared_gate else 0
    wide = 2 * k * ceil(mlp.width / run.tensor) * s - k * hidden * s - 8 * k
    if run.kernels.checkpointing is Checkpointing.FULL and fp32:
        spread -= k * (hidden * s - 8)  # a recomputed expert output goes as soon as it has been read
    gradient = mlp.experts * mlp.width * hidden * s / run.tensor if run.full else 0.0
    keeps_little = not run.full and not run.merges_experts(mlp)
    if run.kernels.checkpointing is Checkpointing.FULL and keeps_little and not fp32:
        # Frozen experts keep so little that the end of the recomputed forward holds more than their backward.
        copies = 4 if mlp.activation is Activation.CLAMPED_SWIGLU else 3
        spread = k * (copies * hidden * s + 30) + 2 * hidden * s
    shared_gone = 0 if mlp.shared_gate else 4 * s * mlp.shared_width
    return max(run.tokens * spread, run.tokens * wide + gradient) - run.tokens * shared_gone


def _norm_behind(block: Block) -> bool:
    return block.post_norm or block.norms == 4


def _norm_gradients(block: Block, hidden: int, run: Pass) -> float:
    """A norm behind the MLP comes first in backward: five fp32 temporaries (20h) while its normalised value goes."""
    if not _norm_behind(block) or run.kernels.fused_norm or run.kernels.compiled:
        return 0.0
    trained = 4 if multiplies_in_fp32(block) else run.compute_bytes
    normalised = trained if run.full else 0
    return run.tokens * ((20 - normalised) * hidden - 4) / run.residual_split


def _norms(block: Block, hidden: int, run: Pass, *, count: int) -> float:
    fp32 = multiplies_in_fp32(block)
    return norm_statistics(block.norm, hidden=hidden, count=count, run=run, fp32_weight=fp32).value


def _score_gradients(block: Block, hidden: int, run: Pass) -> float:
    """Eager attention: gradients of probabilities and scores, when the MLP's half of the block has gone.

    Per score 8 bytes come and the 16-bit cast goes (6); without the fp32 detour 2·s.
    """
    attention = block.attention
    if run.attention_kernel(attention) is not AttentionKernel.EAGER:
        return 0.0
    heads, _ = local_heads(attention, run.tensor)
    s = run.compute_bytes
    scores = heads * (run.keys + attention.sinks) * run.tokens * _bytes_per_score(attention, s)
    gone = total(mlp_kept(block, hidden=hidden, run=run)) + _mlp_side(block, hidden, run)
    value_dim = attention.value_head_dim or attention.head_dim
    gone += run.tokens * s * heads * (2 * value_dim - attention.head_dim)
    return scores - gone + _mlp_weight_gradients(block, hidden, run)


def _mlp_side(block: Block, hidden: int, run: Pass) -> float:
    """Norms and inputs that went with the MLP; in a parallel block attention still needs them."""
    residual = run.tokens * run.compute_bytes * hidden / run.residual_split
    if block.parallel:
        return residual if block.norms == 2 else -residual
    return residual + _norms(block, hidden, run, count=block.norms - (0 if block.post_norm else 1))


def _bytes_per_score(attention: Attention, s: int) -> int:
    upcast = not attention.sinks and attention.qkv_name != "c_attn"
    return 6 if upcast and s == 2 else 2 * s


def _mlp_weight_gradients(block: Block, hidden: int, run: Pass) -> float:
    """Of all linears behind attention and of its output projection."""
    if not run.full:
        return 0.0
    inputs = (block.attention.q_name, block.attention.k_name, block.attention.v_name, block.attention.qkv_name)
    linears = (t for t in block_tensors(block, hidden=hidden) if t.kind in (Kind.LINEAR, Kind.EXPERT))
    return sum(t.numel for t in linears if t.module not in inputs) * run.compute_bytes / run.tensor
