"""What of a row describes the update: micro-batch, kernels, loss?"""

from __future__ import annotations

import re
from typing import Any

from headcount.measure.mapping.batch import Batch
from headcount.measure.mapping.evidence import Case, mapping_in
from headcount.measure.mapping.versions import year_of
from headcount.measure.mapping.words import Method, Notes, attention_of, checkpointing_of, notes_of, stated, text_of

__all__ = ["update_of"]


def update_of(
    case: Case, *, batch: Batch, method: Method, recipe: str, tensor: int = 1, pairs: bool = False
) -> dict[str, Any]:
    """The keys of [update]; what the row leaves out is left out here too. A row of pairs holds two sequences each."""
    fields = case.fields
    notes = notes_of(fields.get("notes"), optimizer=fields.get("optimizer"), precision=fields.get("precision"))
    checkpointing, offloaded = checkpointing_of(fields.get("gradient_checkpointing"))
    return stated(
        {
            "micro_batch_sequences": _sequences(batch, pairs=pairs),
            "micro_batch_tokens": batch.micro_batch_tokens,
            "mini_batch_prompts": batch.mini_batch_rows,
            "row_layout": batch.row_layout,
            "gradient_checkpointing": _policy(checkpointing, recipe),
            "offload_checkpoints": offloaded or notes.offload_checkpoints or None,
            "attention": attention_of(fields.get("attention")),
            "loss_implementation": _loss(case, notes, recipe=recipe, tensor=tensor),
            "fused_norm": notes.fused_norm,
            "fused_mlp": notes.fused_mlp,
            "compiled": notes.compiled,
            "optimizer_in_backward": notes.optimizer_in_backward or None,
            "accumulate": batch.accumulates,
            "residual_bytes": _residual_bytes(case, method),
        }
    )


def _sequences(batch: Batch, *, pairs: bool) -> int | None:
    if batch.micro_batch_tokens or batch.sequences is None:
        return None
    return batch.sequences * (2 if pairs else 1)


def _policy(checkpointing: str | None, recipe: str) -> str | None:
    """torchtitan's "op" policy keeps every second matmul; others keep them all."""
    return "selective-second" if checkpointing == "selective" and recipe == "torchtitan" else checkpointing


def _loss(case: Case, notes: Notes, *, recipe: str, tensor: int) -> str | None:
    """The loss that the row states, in the form that its framework gives it; None leaves it to the recipe."""
    if notes.loss == "chunked" and recipe == "torchtune":
        return "chunked-kept"  # CEWithChunkedOutputLoss does not checkpoint its chunks
    if notes.loss is not None or recipe != "torchtitan":
        return notes.loss
    if tensor > 1:
        return "vocab-parallel"  # loss parallel is on with tensor parallel
    if notes.compiled:
        # From 2025 on the loss is compiled with the model (torchtitan components/loss.py).
        return "plain-kept" if (year_of(case) or 2025) < 2025 else "compiled"
    return None


def _residual_bytes(case: Case, method: Method) -> int | None:
    """2 where peft's k-bit routine does not prepare the base: GPTQ, FSDP, plugins with kernels of their own."""
    if method.tuning != "qlora":
        return None
    notes = text_of(case.fields.get("notes"))
    plugin = re.search(
        r"accelerated .*plugin|fused[^.]*kernels|unsloth", f"{notes} {text_of(case.fields.get('framework'))}"
    )
    sharded = mapping_in(case.fields, "parallelism").get("fsdp")
    return 2 if method.base in ("gptq", "awq") or plugin or sharded else None
