"""Which tokens count in a loss, and what is their sum divided by?

A loss stays per token until `weighted_sum`. The weights of one optimizer step are made from the counts of that whole
step, all micro-batches and ranks, so any split of the batch gives the same sum and the same gradient. Terms that belong
to one loss (policy, KL, entropy) are added per token first and so share one denominator.

Shape letters: B sequences · T tokens.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

__all__ = [
    "AGGREGATIONS", "StepCounts", "kept", "masked_mean", "seq_mean_token_mean", "seq_mean_token_sum",
    "seq_mean_token_sum_norm", "span_mask", "token_mean", "weighted_sum",
]  # fmt: skip


@dataclass(frozen=True, kw_only=True, slots=True)
class StepCounts:
    """What one optimizer step counts, over all its micro-batches and ranks. The only denominators of a loss.

    `sequences` are those with a counted token: a completion that is masked whole is in neither part of the fraction.
    """

    tokens: int
    sequences: int

    def __post_init__(self) -> None:
        if not 0 <= self.sequences <= self.tokens or (self.tokens and not self.sequences):
            raise ValueError(
                f"tokens={self.tokens}, sequences={self.sequences}: every counted sequence has a counted token and "
                "every counted token a sequence. Count both from the same mask."
            )

    @classmethod
    def of(cls, mask_BT: Tensor) -> StepCounts:
        """The counts of one micro-batch; reads the mask on the host."""
        return cls(tokens=int(mask_BT.sum()), sequences=int(mask_BT.any(dim=-1).sum()))

    def __add__(self, other: StepCounts) -> StepCounts:
        return StepCounts(tokens=self.tokens + other.tokens, sequences=self.sequences + other.sequences)


def span_mask(start_B: Tensor, end_B: Tensor, *, width: int) -> Tensor:
    """True where start ≤ t < end. Bool, [B, width].

    Masks come from lengths, never from token ids: with pad = eos an id cannot tell the end from the padding.
    """
    position_T = torch.arange(width, device=start_B.device)
    return (position_T >= start_B.unsqueeze(-1)) & (position_T < end_B.unsqueeze(-1))


def kept(value_BT: Tensor, mask_BT: Tensor) -> Tensor:
    """The value where the mask is true, else 0. NaN outside the mask reaches neither the value nor the gradient."""
    # Not a product: NaN · 0 = NaN.
    return torch.where(mask_BT, value_BT, torch.zeros_like(value_BT))


def masked_mean(value_BT: Tensor, mask_BT: Tensor) -> Tensor:
    """Mean over the counted tokens of each sequence, [B]; 0 for a sequence without any."""
    return kept(value_BT, mask_BT).sum(dim=-1) / mask_BT.sum(dim=-1).clamp(min=1)


def token_mean(mask_BT: Tensor, step: StepCounts) -> Tensor:
    """w = 1 / Σ|y_i|: every token weighs the same.  DAPO, arXiv:2503.14476 eq. 8."""
    return _weights(mask_BT) / _positive(step.tokens)


def seq_mean_token_mean(mask_BT: Tensor, step: StepCounts) -> Tensor:
    """w = 1 / (n·|y_i|): every sequence weighs the same.  GRPO, arXiv:2402.03300 eq. 3."""
    length_B1 = mask_BT.sum(dim=-1, keepdim=True).clamp(min=1)
    return _weights(mask_BT) / (length_B1 * _positive(step.sequences))


def seq_mean_token_sum(mask_BT: Tensor, step: StepCounts) -> Tensor:
    """w = 1 / n: a sequence weighs its length."""
    return _weights(mask_BT) / _positive(step.sequences)


def seq_mean_token_sum_norm(mask_BT: Tensor, step: StepCounts, *, norm_tokens: int) -> Tensor:
    """w = 1 / (n·L) with a constant L, as a rule the longest completion allowed.  Dr. GRPO, arXiv:2503.20783 §3.2."""
    return seq_mean_token_sum(mask_BT, step) / _positive(norm_tokens)


# By the job's `loss_aggregation`. The fourth takes its constant too.
AGGREGATIONS: Mapping[str, Callable[..., Tensor]] = {
    "token-mean": token_mean,
    "seq-mean-token-mean": seq_mean_token_mean,
    "seq-mean-token-sum": seq_mean_token_sum,
    "seq-mean-token-sum-norm": seq_mean_token_sum_norm,
}


def weighted_sum(loss_BT: Tensor, weight_BT: Tensor) -> Tensor:
    """Σ w·loss, a scalar: this micro-batch's part of the step's loss. Weight 0 hides even NaN.

    Under data parallelism gradients must be summed over ranks: switch averaging off or multiply by the world size.
    """
    return (weight_BT.to(loss_BT.dtype) * kept(loss_BT, weight_BT != 0)).sum()


def _weights(mask_BT: Tensor) -> Tensor:
    # Rounded once, to the loss's dtype, where they meet it.
    return mask_BT.to(torch.float64)


def _positive(count: int) -> int:
    if count <= 0:
        raise ValueError(
            f"the step counts {count} where a loss divides: no token of it is trained on. "
            "Look for a mask that is false everywhere (truncated, dropped or empty completions) before the loss."
        )
    return count
