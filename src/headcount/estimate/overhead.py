"""How do allocated bytes become what the driver counts?

Out-of-memory is decided by device-used = reserved + CUDA context + NCCL + other processes. The tables of contexts and
residues are facts; here is only the arithmetic.
"""

from __future__ import annotations

from headcount.ledger.derivation import Derived, derive
from headcount.ledger.predicted import Band
from headcount.vocabulary import Level

__all__ = ["levels", "reserved_extra"]

_SOURCE = "surcharge fitted on open single-framework rows (docs/evidence): one GPU 0.11, sharded 0.17"


def reserved_extra(
    *,
    activation_bytes: float,
    plain_logit_bytes: float = 0,
    sharded: bool,
    expandable: bool = False,
    other_stream_bytes: float = 0,
) -> dict[str, Derived]:
    """Reserved but not allocated: rounding and fragments.

    0.11 (one GPU) or 0.17 (sharded) of checkpoints and live block; and the 16-bit logits' segment, which cannot serve
    the larger fp32 requests, 2 of 12 bytes. Expandable segments have neither; what stays apart there is the pool of
    the reduce-scatter stream, whose sharded gradients the main stream cannot reuse between two backwards.
    """
    return {
        "fragments": derive(
            "share × activations",
            source=_SOURCE,
            share=0.0 if expandable else 0.17 if sharded else 0.11,
            activations=activation_bytes,
        ),
        "logits segment": derive(
            "logits × 2 ÷ 12",
            source="a freed 16-bit segment cannot serve fp32 requests",
            logits=0 if expandable else plain_logit_bytes,
        ),
        "other streams": derive(
            "other_streams",
            source="CUDA caching allocator: a pool per stream; FSDP2 gathers and reduces on streams of their own",
            other_streams=other_stream_bytes if expandable else 0,
        ),
    }


def levels(*, allocated: Band, extra: Band, outside: Band, active: Band | None = None) -> dict[Level, Band]:
    """The four counters: active ≤ allocated ≤ reserved ≤ device-used. `outside`: context, NCCL, residues."""
    reserved = allocated + extra
    return {
        Level.ACTIVE: active or allocated,
        Level.ALLOCATED: allocated,
        Level.RESERVED: reserved,
        Level.DEVICE_USED: reserved + outside,
    }
