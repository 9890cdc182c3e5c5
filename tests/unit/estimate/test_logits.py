"""Do the losses hold the measured bytes per logit, and does each divide by what it should?"""

from __future__ import annotations

from dataclasses import replace

import pytest
from memory_shapes import SHAPE_8B

from headcount.estimate import logits
from headcount.estimate.activations import Pass
from headcount.job.job import Kernels, Loss, MicroBatch


def _run(loss: Loss, *, tokens: int = 4096, row_tokens: int = 4096, tensor: int = 1, s: int = 2) -> Pass:
    micro_batch = MicroBatch(sequences=1, row_tokens=row_tokens, logit_tokens=tokens)
    return Pass(micro_batch=micro_batch, kernels=Kernels(loss=loss), compute_bytes=s, tensor=tensor)


@pytest.mark.parametrize(
    ("loss", "bf16", "fp32"),
    [
        (Loss.PLAIN, (10, 4, 12, 10), (8, 4, 12, 8)),
        (Loss.PLAIN_KEPT, (10, 6, 14, 10), (8, 8, 16, 8)),
        (Loss.LOG_SOFTMAX, (4, 2, 6, 4), (8, 4, 12, 8)),
        (Loss.LOG_SOFTMAX_FP32, (8, 4, 12, 8), (8, 4, 12, 8)),
        (Loss.LOGSUMEXP, (4, 2, 8, 4), (8, 4, 16, 8)),
    ],
)
def test_bytes_per_logit_are_those_measured(loss: Loss, bf16: tuple[int, ...], fp32: tuple[int, ...]) -> None:
    for s, row in ((2, bf16), (4, fp32)):
        run = _run(loss, s=s)
        parts = (logits.logits_forward, logits.kept_logits, logits.logits_backward, logits.no_grad_logits)
        assert tuple(part(SHAPE_8B, run=run).value / 4096 / 128256 for part in parts) == row


def test_soft_cap_costs_one_more_copy() -> None:
    assert logits.logit_bytes(Loss.PLAIN, compute_bytes=2, softcap=True).backward == 14
    assert logits.logit_bytes(Loss.PLAIN, compute_bytes=4, softcap=True).backward == 16


def test_row_by_row_needs_one_row_in_flight() -> None:
    # 2 + 2/B bytes an element without gradient.
    micro_batch = MicroBatch(sequences=4, row_tokens=100, logit_tokens=100)
    run = Pass(micro_batch=micro_batch, kernels=Kernels(loss=Loss.LOGSUMEXP_ROWS))
    assert logits.no_grad_logits(SHAPE_8B, run=run).value == (2 + 2 / 4) * 400 * 128256


def test_a_slice_of_the_logits_is_copied_only_where_the_logits_are_kept() -> None:
    # The first position past the prompt predicts the first completion token, the last one nothing: C of C + 1 count.
    part = _run(Loss.PLAIN, tokens=1025)
    unread = part.micro_batch.sequences
    assert logits.logits_backward(SHAPE_8B, run=part).value == 12 * (1025 - unread) * 128256
    kept = logits.logits_backward(SHAPE_8B, run=_run(Loss.LOGSUMEXP, tokens=1025)).value
    assert kept == (8 + 2) * 1025 * 128256


def test_chunks_bound_the_logits_whatever_the_tokens() -> None:
    short, long = (_run(Loss.CHUNKED, tokens=n, row_tokens=n) for n in (8192, 65536))
    assert logits.peak_logits(SHAPE_8B, run=short).value == logits.peak_logits(SHAPE_8B, run=long).value


def test_only_vocabulary_parallel_losses_divide_by_tensor_ranks() -> None:
    for loss, divided in ((Loss.PLAIN, False), (Loss.MEGATRON, True), (Loss.VOCAB_PARALLEL, True)):
        one, eight = (logits.peak_logits(SHAPE_8B, run=_run(loss, tensor=t)).value for t in (1, 8))
        assert (eight == one / 8) is divided


def test_a_gradient_of_the_head_is_a_copy_of_it() -> None:
    assert logits.head_gradient(SHAPE_8B, run=_run(Loss.CHUNKED)).value == 128256 * 4096 * 2


def test_context_parallel_ranks_share_the_logits() -> None:
    run = _run(Loss.PLAIN)
    assert (
        logits.peak_logits(SHAPE_8B, run=replace(run, context=4)).value * 4
        == logits.peak_logits(SHAPE_8B, run=run).value
    )
