"""What does each sampled token add to the policy's loss?

Per token, to be minimised, before any division (`reduce.weighted_sum`). Ratios come in as `log_ratio_BT` = ℓ − ℓ°
(`logprobs.log_ratio`), per token or made one per sequence here; ρ = e^{log ratio}. With one update per rollout ρ ≡ 1:
`log_ratio(ℓ, ℓ.detach(), mask)` needs no old log-probs, and every loss below then has the gradient −Â·∇ℓ.

Shape letters: B sequences · T response tokens.
"""

from __future__ import annotations

import torch
from torch import Tensor

from headcount.objectives.reduce import kept, masked_mean

__all__ = [
    "cispo_loss", "clipped_policy_loss", "dual_clipped_policy_loss", "geometric_masked_weights", "icepop_weights",
    "is_clipped_high", "is_clipped_low", "negative_log_likelihood", "reinforce_loss", "sequence_log_ratio",
    "sequence_masked_weights", "sequence_token_log_ratio", "truncated_weights",
]  # fmt: skip

MAX_LOG_RATIO = 20.0  # verl, NeMo-RL. Beyond it ρ is a constant: e^89 is inf in float32 and its gradient NaN


def negative_log_likelihood(logprob_BT: Tensor, mask_BT: Tensor) -> Tensor:
    """−ℓ_t on completion tokens, 0 elsewhere: SFT, with `token_mean`; also the NLL term of a preference loss."""
    return kept(-logprob_BT, mask_BT)


def reinforce_loss(logprob_BT: Tensor, advantage_BT: Tensor, mask_BT: Tensor) -> Tensor:
    """−Â·ℓ: the policy gradient itself (Williams 1992; RLOO, arXiv:2402.14740)."""
    return kept(-advantage_BT * kept(logprob_BT, mask_BT), mask_BT)


def clipped_policy_loss(log_ratio_BT: Tensor, advantage_BT: Tensor, *, clip_low: float, clip_high: float) -> Tensor:
    """−min(ρÂ, clip(ρ, 1−ε_low, 1+ε_high)·Â).  PPO, arXiv:1707.06347 eq. 7; two ε: DAPO, arXiv:2503.14476 eq. 10.

    Gradient −Âρ∇ℓ, and 0 where Â > 0 and ρ > 1+ε_high or Â < 0 and ρ < 1−ε_low. GRPO is this with group advantages,
    GSPO this with `sequence_log_ratio`.
    """
    ratio_BT = _ratio(log_ratio_BT)
    clipped_BT = ratio_BT.clamp(min=1 - clip_low, max=1 + clip_high)
    return -torch.minimum(ratio_BT * advantage_BT, clipped_BT * advantage_BT)


def dual_clipped_policy_loss(
    log_ratio_BT: Tensor, advantage_BT: Tensor, *, clip_low: float, clip_high: float, dual_clip: float
) -> Tensor:
    """`clipped_policy_loss`, and for Â < 0 at most −c·Â: a bad token that became likely can't pull without limit.

    Dual-clip PPO, arXiv:1912.09729. Raises ValueError unless c > 1.
    """
    if not dual_clip > 1:
        raise ValueError(f"dual_clip={dual_clip} must exceed 1, the ratio on policy; 3 is the paper's and verl's.")
    loss_BT = clipped_policy_loss(log_ratio_BT, advantage_BT, clip_low=clip_low, clip_high=clip_high)
    return torch.where(advantage_BT < 0, torch.minimum(loss_BT, -dual_clip * advantage_BT), loss_BT)


def cispo_loss(
    logprob_BT: Tensor, log_ratio_BT: Tensor, advantage_BT: Tensor, mask_BT: Tensor, *, ratio_max: float
) -> Tensor:
    """−sg(min(ρ, ε_max))·Â·ℓ: the weight is clipped, the gradient never vanishes.  CISPO, arXiv:2506.13585 eq. 4–5."""
    weight_BT = _ratio(log_ratio_BT).detach().clamp(max=ratio_max)
    return reinforce_loss(logprob_BT, weight_BT * advantage_BT, mask_BT)


def sequence_log_ratio(log_ratio_BT: Tensor, mask_BT: Tensor) -> Tensor:
    """log s_i = mean_t(ℓ − ℓ°), the same for every token of i; 0 outside the mask.  GSPO, arXiv:2507.18071 eq. 7."""
    return kept(masked_mean(log_ratio_BT, mask_BT).unsqueeze(-1).expand(mask_BT.shape), mask_BT)


def sequence_token_log_ratio(log_ratio_BT: Tensor, mask_BT: Tensor) -> Tensor:
    """log s_{i,t} = sg(log s_i) + ℓ_t − sg(ℓ_t): GSPO's value with a gradient per token.  arXiv:2507.18071 eq. 14."""
    return sequence_log_ratio(log_ratio_BT, mask_BT).detach() + log_ratio_BT - log_ratio_BT.detach()


def is_clipped_high(log_ratio_BT: Tensor, advantage_BT: Tensor, *, clip_high: float) -> Tensor:
    """True where the upper clip stops the gradient: Â > 0 and ρ > 1 + ε_high."""
    return (advantage_BT > 0) & (_ratio(log_ratio_BT) > 1 + clip_high)


def is_clipped_low(log_ratio_BT: Tensor, advantage_BT: Tensor, *, clip_low: float) -> Tensor:
    """True where the lower clip stops the gradient: Â < 0 and ρ < 1 − ε_low."""
    return (advantage_BT < 0) & (_ratio(log_ratio_BT) < 1 - clip_low)


# Weights for samples drawn by an engine whose log-probs differ from the trainer's: w = e^{ℓ° − ℓ^engine}. They multiply
# the loss and carry no gradient. Both sides must be of one temperature, without top-p, top-k or min-p.


@torch.no_grad()
def truncated_weights(engine_log_ratio_BT: Tensor, *, high: float, low: float = 0.0) -> Tensor:
    """clip(w, low, high) per token: truncated importance sampling (TIS)."""
    return _ratio(engine_log_ratio_BT).clamp(min=low, max=high)


@torch.no_grad()
def icepop_weights(engine_log_ratio_BT: Tensor, *, low: float, high: float) -> Tensor:
    """w where low ≤ w ≤ high, else 0, per token: IcePop."""
    weight_BT = _ratio(engine_log_ratio_BT)
    return kept(weight_BT, (weight_BT >= low) & (weight_BT <= high))


@torch.no_grad()
def sequence_masked_weights(engine_log_ratio_BT: Tensor, mask_BT: Tensor, *, high: float) -> Tensor:
    """W = e^{Σ_t log w} where W ≤ high, else 0, for the whole sequence: TRL's `sequence_mask`.

    Gaps add up over tokens, so long completions are dropped first: report the share of sequences at 0.
    """
    weight_B1 = _ratio(kept(engine_log_ratio_BT, mask_BT).sum(dim=-1, keepdim=True))
    return kept(weight_B1, weight_B1 <= high).expand(mask_BT.shape)


@torch.no_grad()
def geometric_masked_weights(engine_log_ratio_BT: Tensor, mask_BT: Tensor, *, low: float, high: float) -> Tensor:
    """w_t where low ≤ e^{mean_t log w} ≤ high, else 0 for the whole sequence: OpenRLHF's `seq-mask-tis`."""
    mean_B1 = _ratio(masked_mean(engine_log_ratio_BT, mask_BT).unsqueeze(-1))
    return kept(_ratio(engine_log_ratio_BT), ((mean_B1 >= low) & (mean_B1 <= high)).expand(mask_BT.shape))


def _ratio(log_ratio_BT: Tensor) -> Tensor:
    return log_ratio_BT.clamp(min=-MAX_LOG_RATIO, max=MAX_LOG_RATIO).exp()
