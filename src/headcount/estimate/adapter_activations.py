"""What do LoRA adapters add to the kept bytes of a block and to its backward?

Measured on PyTorch 2.13 fake tensors with peft 0.21 (tests/ground_truth).
"""

from __future__ import annotations

from collections.abc import Iterator

from headcount.estimate.forward_pass import Pass
from headcount.estimate.parameters import Kind, Tensor, block_tensors
from headcount.facts.model_shape import Block, DenseMlp
from headcount.ledger.derivation import Derived, derive

__all__ = ["adapted_linears", "adapters_hump", "adapters_kept"]

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


def adapters_hump(block: Block, *, hidden: int, run: Pass) -> Derived:
    """Beyond the block's own hump: 4f + 6h − 4r − 4 (fp32 adapters) or 4f − 4h − 2r − 4 (16-bit), per token."""
    if run.adapter is None or not isinstance(block.mlp, DenseMlp) or not run.adapts(block.mlp.down_name):
        return derive("0")
    wide = run.adapter.weight_bytes > run.compute_bytes
    return derive(
        "tokens × (4 × ffn_width + hidden_bytes × hidden − adapter_bytes × rank − 4)",
        source=_SOURCE,
        tokens=run.tokens,
        ffn_width=block.mlp.width / run.tensor,
        hidden_bytes=6 if wide else -4,
        hidden=hidden,
        adapter_bytes=run.adapter.weight_bytes,
        rank=run.adapter.rank,
    )
