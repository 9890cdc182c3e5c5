"""What does a forward without gradient hold at its widest: inside the MLP, or inside attention?

Log-probs of a frozen network, rewards and values run so. Nothing is kept, so one block at work is all there is.
Measured on PyTorch 2.13 fake tensors (tests/ground_truth).
"""

from __future__ import annotations

from math import ceil

from headcount.estimate.adapter_activations import adapted_linears
from headcount.estimate.attention_activations import falls_to_math, local_heads
from headcount.estimate.forward_pass import Pass
from headcount.estimate.mlp_activations import merged_experts
from headcount.facts.model_shape import Activation, AttentionKind, Block, DenseMlp, MoeMlp
from headcount.job.job import AttentionKernel
from headcount.ledger.derivation import Derived, derive

__all__ = ["no_grad_block"]

_SOURCE = "measured on PyTorch 2.13 fake tensors (tests/ground_truth)"


def no_grad_block(block: Block, *, hidden: int, run: Pass) -> Derived:
    """The wider of the two. For Llama the MLP: N·s(3f + 4h): activated gate, up, product; residual, norm, sums."""
    mlp = block.mlp
    merged = isinstance(mlp, MoeMlp) and run.merges_experts(mlp)
    return derive(
        "max(tokens × mlp_bytes + merged_experts, tokens × attention_bytes)",
        source=_SOURCE,
        tokens=run.tokens,
        mlp_bytes=_mlp(block, hidden, run),
        merged_experts=merged_experts(mlp, hidden=hidden, run=run).value if merged and isinstance(mlp, MoeMlp) else 0,
        attention_bytes=_attention(block, hidden, run),
    )


def _mlp(block: Block, hidden: int, run: Pass) -> float:
    mlp, s = block.mlp, run.compute_bytes
    if isinstance(mlp, MoeMlp):
        return _experts(mlp, hidden, run)
    heads, _ = local_heads(block.attention, run.tensor)
    eager = run.attention_kernel(block.attention) is AttentionKernel.EAGER
    returned = heads * run.keys if eager else 0  # eager attention hands its probabilities to the block
    streams = 3 if block.post_norm else 4
    if mlp.gated:
        copies = 4 if mlp.fused_gate_up else 3  # a split gate_up stays whole under its two halves
    elif mlp.activation is Activation.GELU_PYTHON:
        copies, streams = 4, streams + (0 if block.parallel else 1)
    else:
        copies = 2
    plain = s * (copies * mlp.width / run.tensor + streams * hidden + returned)
    at_work = _adapter_at_work(block, hidden, run)
    if mlp.gated or not at_work:
        return plain + at_work
    return max(plain, s * (2 * mlp.width / run.tensor + 5 * hidden) + at_work)


def _adapter_at_work(block: Block, hidden: int, run: Pass) -> float:
    """The widest adapted linear's result stands beside its adapter's: s·out; in another dtype both ends are cast too.

    Llama's up: s·f in the compute dtype, s·f + 4f + 4h for fp32 adapters.
    """
    mlp = block.mlp
    if not isinstance(mlp, DenseMlp):
        return 0
    mlp_inputs = (mlp.up_name, mlp.gate_up_name)
    adapted = adapted_linears(block, hidden=hidden, run=run)
    widths = [linear.rows for linear in adapted if linear.columns == hidden and linear.module in mlp_inputs]
    if not widths or run.adapter is None:
        return 0
    out = max(widths) / run.tensor
    cast = run.adapter.weight_bytes if run.adapter.weight_bytes != run.compute_bytes else 0
    return run.compute_bytes * out + cast * (out + hidden)


def _experts(mlp: MoeMlp, hidden: int, run: Pass) -> float:
    """Grouped matmul: outputs weighted and put back (4kh), or the gated MLP of wide experts (4km + kh)."""
    s, k = run.compute_bytes, mlp.active
    weighted = k * hidden * (2 * s + 8 if mlp.fp32_weights else 4 * s)
    copies = 6 if mlp.activation is Activation.CLAMPED_SWIGLU else 4
    wide = k * s * (copies * ceil(mlp.width / run.tensor) + hidden)
    indices = 36 * k + s * mlp.experts + (8 * k if mlp.fp32_weights else 0)
    shared = s * hidden if mlp.shared_gate else 0
    return max(weighted, wide) + indices + shared + 4 * s * hidden


def _attention(block: Block, hidden: int, run: Pass) -> float:
    """Three residual-wide tensors, the projections, rotated copies, output; for eager the scores."""
    attention, s = block.attention, run.compute_bytes
    heads, kv_heads = local_heads(attention, run.tensor)
    value_dim = attention.value_head_dim or attention.head_dim
    q, k, v = heads * attention.head_dim, kv_heads * attention.head_dim, kv_heads * value_dim
    eager = run.attention_kernel(attention) is AttentionKernel.EAGER
    widths = 3 * hidden + q + k + v
    if attention.kind is AttentionKind.MLA:
        widths += q + heads * attention.head_dim + 2 * (attention.kv_lora_rank + attention.rope_head_dim)
    elif attention.fused_qkv and attention.qkv_name != "c_attn":
        widths += q + k
    if run.expands_kv(attention):
        widths += heads * (attention.head_dim + value_dim)
    if falls_to_math(attention, run):
        return s * widths + 4 * heads * (3 * attention.head_dim + value_dim + 2 * run.keys)
    if eager:
        return s * widths + _scores(block, heads, run)
    output = heads * value_dim * (2 if attention.joined_rotary else 1)
    mask = run.keys * s if run.masked(attention) else 0
    return s * (widths + output) + mask


def _scores(block: Block, heads: int, run: Pass) -> float:
    """Per head and key: masked scores, fp32 copy, fp32 probabilities (8 + s)."""
    attention, s = block.attention, run.compute_bytes
    if attention.sinks:
        each = 3 * s
    elif attention.qkv_name == "c_attn":
        each = 2 * s
    else:
        each = 8 + s if s == 2 else 8
    return run.keys * heads * each
