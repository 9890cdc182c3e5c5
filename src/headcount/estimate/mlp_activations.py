"""What does one MLP, dense or of experts, keep between forward and backward?

Measured on PyTorch 2.13 fake tensors (tests/ground_truth).
"""

from __future__ import annotations

from math import ceil

from headcount.estimate.forward_pass import Pass
from headcount.facts.model_shape import Activation, AttentionKind, Block, DenseMlp, MoeMlp
from headcount.ledger.derivation import Derived, derive

__all__ = ["merged_experts", "mlp_kept"]

_SOURCE = "measured on PyTorch 2.13 fake tensors (tests/ground_truth)"
_UNGATED_COPIES = {
    Activation.GELU_PYTHON: 5,  # every operation of the formula keeps its own output
    Activation.RELU: 1,  # the output is also the next linear's input
    Activation.RELU_SQUARED: 2,
}


def mlp_kept(block: Block, *, hidden: int, run: Pass) -> dict[str, Derived]:
    """Everything between the MLP's input (which the norms count) and its output."""
    mlp = block.mlp
    if isinstance(mlp, DenseMlp):
        return {"mlp": _dense(mlp, run)}
    terms = {"experts": _experts(mlp, hidden, run), "router": _router(block, mlp, hidden, run)}
    if run.merges_experts(mlp):
        terms["merged experts"] = merged_experts(mlp, hidden=hidden, run=run)
    if mlp.shared_width:
        terms["shared experts"] = _dense(DenseMlp(width=mlp.shared_width, activation=mlp.activation), run)
    return terms


def _dense(mlp: DenseMlp, run: Pass) -> Derived:
    """Gated: gate, activated gate, up, product: 4 copies (3 when down is frozen and needs no input)."""
    return derive(
        "copies × tokens × ffn_width × compute_bytes",
        source=_SOURCE,
        copies=_copies(mlp, run),
        tokens=run.tokens,
        ffn_width=ceil(mlp.width / run.tensor),
        compute_bytes=run.compute_bytes,
    )


def _copies(mlp: DenseMlp, run: Pass) -> int:
    needs_product = run.keeps_input(mlp.down_name)
    if not mlp.gated:
        copies = 2 if _one_kernel(mlp, run) else _UNGATED_COPIES.get(mlp.activation, 2)
        return copies if needs_product or mlp.activation is Activation.RELU else copies - 1
    if run.kernels.fused_mlp or run.kernels.compiled:
        return 2 + needs_product  # gate, up, and the next matmul's input; the activated gate is recomputed
    return 3 + needs_product


def _one_kernel(mlp: DenseMlp, run: Pass) -> bool:
    """A Python GELU that a library writes as one kernel keeps its input and its output only."""
    kernels = run.kernels
    return mlp.activation is Activation.GELU_PYTHON and (kernels.native_gelu or kernels.fused_mlp or kernels.compiled)


def _experts(mlp: MoeMlp, hidden: int, run: Pass) -> Derived:
    """Grouped matmul, per expert chosen: sorted input and output 2h, the gated MLP 4m (gpt-oss's clamped form 7m).

    Frozen experts keep neither input nor product: h + 3m (6m).
    """
    trained = int(run.full or run.adapts_experts or run.merges_experts(mlp))
    return derive(
        "tokens × active × (compute_bytes × (hidden_copies × hidden + ffn_copies × expert_width)"
        " + fp32_outputs × 4 × hidden)",
        source=_SOURCE,
        tokens=run.tokens,
        active=mlp.active,
        compute_bytes=run.compute_bytes,
        hidden_copies=1 + trained,
        hidden=hidden,
        ffn_copies=(6 if mlp.activation is Activation.CLAMPED_SWIGLU else 3) + trained,
        expert_width=ceil(mlp.width / run.tensor),
        fp32_outputs=int(run.kernels.experts_weighted_fp32),
    )


def merged_experts(mlp: MoeMlp, *, hidden: int, run: Pass) -> Derived:
    """All experts once more, W + B·A, and the router's own: E·3·m·h·s + E·h·s + 4·r·(h + E)."""
    assert run.adapter is not None
    return derive(
        "experts × compute_bytes × hidden × (3 × expert_width + 1) + 4 × rank × (hidden + experts)",
        source=_SOURCE,
        experts=mlp.experts,
        compute_bytes=run.compute_bytes,
        hidden=hidden,
        expert_width=ceil(mlp.width / run.tensor),
        rank=run.adapter.rank,
    )


def _router(block: Block, mlp: MoeMlp, hidden: int, run: Pass) -> Derived:
    """Indices and weights of the chosen (32 + s each), 4E probabilities and 4E group offsets.

    Normalised weights keep their fp32 selves and their sum. DeepSeek's router reads an fp32 copy of the input; gpt-oss
    scores only the chosen; a gate on the shared expert keeps that expert's output.
    """
    s = run.compute_bytes
    clamped = mlp.activation is Activation.CLAMPED_SWIGLU
    weight_bytes = 4 if mlp.fp32_weights else s
    chosen = 32 + weight_bytes + (8 * run.full + s if clamped else 0) + 4 * mlp.normalised
    token = (0 if clamped else 4 * mlp.experts) + 4 * mlp.normalised
    token += 4 * hidden if run.full and block.attention.kind is AttentionKind.MLA else 0
    gate = s * (hidden + 1) if mlp.shared_gate else 0
    return derive(
        "tokens × (active × bytes_per_choice + bytes_per_token + shared_gate) + 4 × experts",
        source=_SOURCE,
        tokens=run.tokens,
        active=mlp.active,
        bytes_per_choice=chosen,
        bytes_per_token=token,
        shared_gate=gate,
        experts=mlp.experts,
    )
