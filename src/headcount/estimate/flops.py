"""How many floating-point operations does a token cost?"""

from __future__ import annotations

from headcount.estimate.parameters import active_parameters
from headcount.facts.model_shape import ModelShape
from headcount.ledger.derivation import Derived, derive

__all__ = ["forward_flops", "update_flops"]


def forward_flops(shape: ModelShape, *, tokens: float, row_tokens: float, scalar_head: bool = False) -> Derived:
    """One forward pass: 2 per active parameter and token, and causal attention, 2·L·heads·d·T per token.

    Scores and weighted values cost 4·heads·d each token and key; a causal token sees half of the row on average.
    """
    width = sum(count * block.attention.o_width for count, block in shape.blocks)
    return derive(
        "tokens × (2 × active_parameters + 2 × attention_width × row_tokens)",
        source="Kaplan et al., arXiv:2001.08361 §2.1; causal half of the attention term",
        tokens=tokens,
        active_parameters=active_parameters(shape, scalar_head=scalar_head),
        attention_width=width,
        row_tokens=row_tokens,
    )


def update_flops(forward: Derived, *, full: bool, recompute: bool) -> Derived:
    """Backward is twice the forward (once for LoRA: no weight gradients); full checkpointing repeats the forward.

    6N, 8N with recompute; LoRA 4N, 6N.
    """
    return derive(
        "forward_flops × (1 + backward + recompute)",
        source="6N and 8N of Narayanan et al., arXiv:2104.04473 §3.2; LoRA computes no weight gradients",
        forward_flops=forward.value,
        backward=2 if full else 1,
        recompute=int(recompute),
    )
