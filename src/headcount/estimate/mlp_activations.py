"""What does one MLP, dense or of experts, keep between forward and backward?

Measured on PyTorch 2.13 fake tensors (tests/ground_truth).
"""

from __future__ import annotations

from math import ceil

from headcount.estimate.forward_pass import Pass
from headcount.facts.model_shape import Activation, DenseMlp, MoeMlp
from headcount.ledger.derivation import Derived, derive

__all__ = ["mlp_kept"]

_SOURCE = "measured on PyTorch 2.13 fake tensors (tests/ground_truth)"
_UNGATED_COPIES = {
    Activation.GELU_PYTHON: 5,  # every operation of the formula keeps its own output
    Activation.RELU: 1,  # the output is also the next linear's input
    Activation.RELU_SQUARED: 2,
}


def mlp_kept(mlp: DenseMlp | MoeMlp, *, hidden: int, run: Pass) -> dict[str, Derived]:
    """Everything between the MLP's input (which the norms count) and its output."""
    if isinstance(mlp, DenseMlp):
        return {"mlp": _dense(mlp, run)}
    terms = {"experts": _experts(mlp, hidden, run)}
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
        copies = _UNGATED_COPIES.get(mlp.activation, 2)
        return copies if needs_product or mlp.activation is Activation.RELU else copies - 1
    if run.kernels.compiled:
        return 2  # gate and up; the pointwise rest is recomputed
    if run.kernels.fused_mlp:
        return 2 + needs_product
    return 3 + needs_product


def _experts(mlp: MoeMlp, hidden: int, run: Pass) -> Derived:
    """Grouped matmul: k(2sh + 4sm + 32 + s) + 4E per token and the group offsets, 4E."""
    return derive(
        "tokens × (active × (2 × compute_bytes × hidden + 4 × compute_bytes × expert_width + 32 + compute_bytes)"
        " + 4 × experts) + 4 × experts",
        source=_SOURCE,
        tokens=run.tokens,
        active=mlp.active,
        compute_bytes=run.compute_bytes,
        hidden=hidden,
        expert_width=ceil(mlp.width / run.tensor),
        experts=mlp.experts,
    )
