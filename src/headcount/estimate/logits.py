"""How many bytes do the logits and the loss hold, for each way of computing them?

Bytes per logit element (logit tokens × vocabulary), measured on PyTorch 2.13 (docs/equations): alive during the
forward, kept between forward and backward, alive during the backward, and in a pass without gradient.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil

from headcount.estimate.forward_pass import Pass
from headcount.facts.model_shape import ModelShape
from headcount.job.job import Loss
from headcount.ledger.derivation import Derived, derive

__all__ = [
    "LogitBytes", "head_gradient", "kept_logits", "logit_bytes", "logits_backward", "logits_forward", "no_grad_logits",
    "peak_logits",
]  # fmt: skip

_SOURCE = "measured on PyTorch 2.13 (docs/equations)"


@dataclass(frozen=True, slots=True)
class LogitBytes:
    """Bytes per logit element at four moments."""

    forward: float
    kept: float
    backward: float
    no_grad: float

    @property
    def peak(self) -> float:
        """The larger of forward and backward."""
        return max(self.forward, self.backward)


_SIXTEEN = {
    Loss.PLAIN: LogitBytes(10, 4, 12, 10),
    Loss.PLAIN_KEPT: LogitBytes(10, 6, 14, 10),
    Loss.PLAIN_FP32_KEPT: LogitBytes(10, 8, 16, 10),
    Loss.LOG_SOFTMAX: LogitBytes(4, 2, 6, 4),
    Loss.LOG_SOFTMAX_FP32: LogitBytes(8, 4, 12, 8),
    Loss.LOG_SOFTMAX_ROWS: LogitBytes(4, 2, 4, 2),
    Loss.LOGSUMEXP: LogitBytes(4, 2, 8, 4),
    Loss.LOGSUMEXP_ROWS: LogitBytes(2, 2, 6, 2),
    Loss.CHUNKED: LogitBytes(8, 0, 12, 8),
    Loss.CHUNKED_KEPT: LogitBytes(2, 2, 2, 2),  # and fp32 of one chunk
    Loss.COMPILED: LogitBytes(2, 2, 4, 2),
    Loss.FUSED: LogitBytes(8, 8, 8, 8),
    Loss.FUSED_LINEAR: LogitBytes(8, 0, 12, 8),
    Loss.VOCAB_PARALLEL: LogitBytes(14, 8, 18, 10),
    Loss.MEGATRON: LogitBytes(10, 6, 10, 6),
}
_THIRTY_TWO = {
    Loss.PLAIN: LogitBytes(8, 4, 12, 8),
    Loss.PLAIN_KEPT: LogitBytes(8, 8, 16, 8),
    Loss.PLAIN_FP32_KEPT: LogitBytes(8, 8, 16, 8),
    Loss.LOG_SOFTMAX: LogitBytes(8, 4, 12, 8),
    Loss.LOG_SOFTMAX_FP32: LogitBytes(8, 4, 12, 8),
    Loss.LOG_SOFTMAX_ROWS: LogitBytes(8, 4, 8, 4),
    Loss.LOGSUMEXP: LogitBytes(8, 4, 16, 8),
    Loss.LOGSUMEXP_ROWS: LogitBytes(4, 4, 12, 4),
    Loss.CHUNKED: LogitBytes(8, 0, 12, 8),
    Loss.CHUNKED_KEPT: LogitBytes(4, 4, 4, 4),
    Loss.COMPILED: LogitBytes(4, 4, 8, 4),
    Loss.FUSED: LogitBytes(8, 8, 8, 8),
    Loss.FUSED_LINEAR: LogitBytes(8, 0, 12, 8),
    Loss.VOCAB_PARALLEL: LogitBytes(16, 8, 20, 12),
    Loss.MEGATRON: LogitBytes(12, 8, 12, 8),
}
_ROW_BY_ROW = (Loss.LOG_SOFTMAX_ROWS, Loss.LOGSUMEXP_ROWS)
_IN_CHUNKS = (Loss.CHUNKED, Loss.FUSED_LINEAR)
_LOGITS_KEPT = (Loss.LOGSUMEXP, Loss.LOGSUMEXP_ROWS)
_OVER_TENSOR_RANKS = (Loss.VOCAB_PARALLEL, Loss.MEGATRON)


def logit_bytes(loss: Loss, *, compute_bytes: int, softcap: bool = False) -> LogitBytes:
    """The row of the table; a soft cap keeps its tanh: + s kept and + s at both peaks (Gemma 2, plain loss)."""
    row = (_SIXTEEN if compute_bytes == 2 else _THIRTY_TWO)[loss]
    if not softcap:
        return row
    return LogitBytes(row.forward + compute_bytes, row.kept + compute_bytes, row.backward + compute_bytes, row.no_grad)


def logits_forward(shape: ModelShape, *, run: Pass) -> Derived:
    """While the loss is computed."""
    per_row = run.compute_bytes if run.kernels.loss in _ROW_BY_ROW else 0
    return _logits(shape, run, _row(shape, run).forward, one_row=per_row)


def kept_logits(shape: ModelShape, *, run: Pass) -> Derived:
    """Between forward and backward."""
    return _logits(shape, run, _row(shape, run).kept)


def logits_backward(shape: ModelShape, *, run: Pass) -> Derived:
    """At the top of the backward.

    `logits_to_keep = C + 1` makes one position a row that no loss reads. Where the logits themselves are kept
    (logsumexp) the slice's gradient stands beside the whole one: s·B·(C+1)·V more; a log-softmax is done before.
    """
    part = run.micro_batch.logit_tokens < run.micro_batch.row_tokens and run.kernels.loss not in _IN_CHUNKS
    per_element = _row(shape, run).backward
    if part and run.kernels.loss in _LOGITS_KEPT:
        return _logits(shape, run, per_element, sliced=run.compute_bytes)
    return _logits(shape, run, per_element, unread=run.micro_batch.sequences if part else 0)


def peak_logits(shape: ModelShape, *, run: Pass) -> Derived:
    """The larger of forward and backward."""
    return max(logits_forward(shape, run=run), logits_backward(shape, run=run), key=lambda part: part.value)


def no_grad_logits(shape: ModelShape, *, run: Pass) -> Derived:
    """Log-probs of a frozen network or of the old policy."""
    per_row = run.compute_bytes if run.kernels.loss in _ROW_BY_ROW else 0
    return _logits(shape, run, _row(shape, run).no_grad, one_row=per_row)


def _row(shape: ModelShape, run: Pass) -> LogitBytes:
    return logit_bytes(run.kernels.loss, compute_bytes=run.compute_bytes, softcap=shape.logit_softcap)


def _logits(
    shape: ModelShape, run: Pass, per_element: float, *, one_row: int = 0, sliced: int = 0, unread: int = 0
) -> Derived:
    """tokens × vocabulary × bytes; chunked losses see one chunk, vocabulary-parallel ones a share of V."""
    loss = run.kernels.loss
    tokens = run.logit_tokens - unread / run.context
    if loss in _IN_CHUNKS:
        tokens = min(tokens, run.kernels.loss_chunk_tokens)
    split = run.tensor if loss in _OVER_TENSOR_RANKS else 1
    if loss is Loss.CHUNKED_KEPT:
        return _with_one_chunk(shape, run, per_element)
    if not one_row and not sliced:
        return derive(
            "logit_tokens × vocabulary × bytes_per_logit",
            source=_SOURCE,
            logit_tokens=tokens,
            vocabulary=ceil(shape.vocab / split),
            bytes_per_logit=per_element,
        )
    return derive(
        "vocabulary × (logit_tokens × (bytes_per_logit + slice_bytes) + row_tokens × row_bytes)",
        source=_SOURCE,
        vocabulary=ceil(shape.vocab / split),
        logit_tokens=tokens,
        bytes_per_logit=per_element,
        slice_bytes=sliced,
        row_tokens=run.micro_batch.logit_tokens,
        row_bytes=one_row,
    )


def _with_one_chunk(shape: ModelShape, run: Pass, per_element: float) -> Derived:
    """16-bit logits of every chunk, and the fp32 copy of the one whose loss is computed."""
    return derive(
        "vocabulary × (logit_tokens × bytes_per_logit + chunk_tokens × 4)",
        source="torchtune CEWithChunkedOutputLoss: chunks upcast one by one, not checkpointed",
        vocabulary=shape.vocab,
        logit_tokens=run.logit_tokens,
        bytes_per_logit=per_element,
        chunk_tokens=min(run.logit_tokens, run.kernels.loss_chunk_tokens),
    )


def head_gradient(shape: ModelShape, *, run: Pass) -> Derived:
    """The head's weight gradient, V·h·s. Chunked and fused-linear losses accumulate it from the first chunk on."""
    return derive(
        "vocabulary × hidden × compute_bytes",
        source=_SOURCE,
        vocabulary=ceil(shape.vocab / run.tensor),
        hidden=shape.hidden,
        compute_bytes=run.compute_bytes,
    )
