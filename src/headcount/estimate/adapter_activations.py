"""What do LoRA adapters add to the kept bytes of a block and to its backward?

Measured on PyTorch 2.13 fake tensors with peft 0.21 (tests/ground_truth).
"""

from __future__ import annotations

from collections.abc import Iterator

from headcount.estimate.forward_pass import Pass
from headcount.estimate.parameters import Kind, Tensor, block_tensors
from headcount.facts.model_shape import Activation, Block, DenseMlp
from headcount.job.job import Checkpointing
from headcount.ledger.derivation import Derived, derive

__all__ = ["adapted_linears", "adapted_mlp_gradients", "adapters_kept"]

_SOURCE = "measured on PyTorch 2.13 fake tensors (tests/ground_truth)"


def adapted_linears(block: Block, *, hidden: int, run: Pass) -> Iterator[Tensor]:
    """The linears of a block that carry an adapter."""
    for tensor in block_tensors(block, hidden=hidden):
        if tensor.kind is Kind.LINEAR and run.adapts(tensor.module):
            yield tensor


def adapters_kept(block: Block, *, hidden: int, run: Pass) -> dict[str, Derived]:
    """The narrow activations, r × bytes an adapter, and each adapter's own copy of its input.

    An adapter in the compute dtype shares the input (counted with the linears). In another dtype each casts a copy;
    with dropout each keeps the dropped input and the mask instead.
    """
    if run.adapter is None:
        return {}
    linears = tuple(adapted_linears(block, hidden=hidden, run=run))
    dropout = run.adapter.dropout > 0
    mask_bytes = (run.adapter.weight_bytes if run.on_cpu else 1) if dropout else 0
    own_copy = run.adapter.weight_bytes != run.compute_bytes or dropout
    return {
        "adapter activations": derive(
            "tokens × (adapters × rank × adapter_bytes + input_widths × bytes_per_input)",
            source=_SOURCE,
            tokens=run.tokens,
            adapters=len(linears),
            rank=run.adapter.rank,
            adapter_bytes=run.adapter.weight_bytes,
            input_widths=sum(linear.columns for linear in linears),
            bytes_per_input=own_copy * run.adapter.weight_bytes + mask_bytes,
        )
    }


def adapted_mlp_gradients(block: Block, *, hidden: int, run: Pass) -> Derived | None:
    """What a gated MLP with an adapter on its last linear holds beyond its kept bytes; None without such an adapter.

    16-bit adapters: 2·s·f − s·r, as without adapters. fp32 adapters: 4f + 2h. Under checkpointing the end of the
    recomputed forward holds more: 4f + 10h − 4r; with dropout 6f + 12h (fp32) or 2f + 8h (16-bit).
    """
    adapter, mlp = run.adapter, block.mlp
    if adapter is None or not isinstance(mlp, DenseMlp) or not run.adapts(mlp.down_name):
        return None
    wide, dropout = adapter.weight_bytes > run.compute_bytes, adapter.dropout > 0
    if mlp.activation is Activation.RELU and not wide and not dropout:
        return None  # base and adapter gradients and their sum: three copies, counted with the plain ones
    recomputed = run.kernels.checkpointing is Checkpointing.FULL
    per_ffn, per_hidden, per_rank = (_FUSED if mlp.fused_gate_up else _SEPARATE)[wide, dropout, recomputed]
    return derive(
        "tokens × (ffn_bytes × ffn_width + hidden_bytes × hidden − rank_bytes × rank) × compute_bytes ÷ 2",
        source=_SOURCE,
        tokens=run.tokens,
        ffn_bytes=per_ffn,
        ffn_width=mlp.width / run.tensor,
        hidden_bytes=per_hidden,
        hidden=hidden,
        rank_bytes=per_rank,
        rank=adapter.rank,
        compute_bytes=run.compute_bytes,
    )


# (fp32 adapters over a 16-bit base, dropout, checkpointed): bytes per ffn feature, hidden feature and rank
_SEPARATE = {
    (False, False, False): (4, 0, 2),
    (False, False, True): (4, 0, 2),
    (False, True, False): (2, 0, 0),
    (False, True, True): (2, 8, 0),
    (True, False, False): (4, 2, 0),
    (True, False, True): (4, 10, 4),
    (True, True, False): (4, 2, 0),
    (True, True, True): (6, 12, 0),
}

# the same where gate and up are one linear (Phi-3), whose adapter's output is as wide as both
_FUSED = {
    (False, False, False): (4, 0, 2),
    (False, False, True): (4, 4, 2),
    (False, True, False): (2, 0, 0),
    (False, True, True): (2, 8, 0),
    (True, False, False): (10, 0, 4),
    (True, False, True): (10, 10, 4),
    (True, True, False): (6, 0, 4),
    (True, True, True): (6, 14, 4),
}
