"""How good was each sampled answer, next to its siblings, to the critic or to the batch?

Nothing here carries a gradient. A group function takes `scored_PG`, false for a completion that no reward could be
computed for (an infrastructure failure, a reward that abstains, a place that no sample fills): it counts in no mean and
no standard deviation, and its advantage is 0. A verifier that says no is a scored 0.

Shape letters: P prompts · G samples per prompt · B sequences (= P·G) · T response tokens; 1 an axis kept for
broadcasting.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from headcount.objectives.reduce import kept

__all__ = [
    "Moments", "centered_advantages", "discounted_returns", "gae_advantages", "informative_groups",
    "leave_one_out_advantages", "leave_one_out_standardized_advantages", "lowered_without_eos", "overlong_penalty",
    "per_token", "reinforce_plus_plus_advantages", "replaced_without_eos", "scaled_to_unit_std",
    "standardized_advantages", "value_targets", "whitened",
]  # fmt: skip

WHITEN_EPS = 1e-8  # under the root: TRL and lm-human-preferences


@torch.no_grad()
def gae_advantages(reward_BT: Tensor, value_BT: Tensor, mask_BT: Tensor, *, gamma: float, gae_lambda: float) -> Tensor:
    """Generalized advantage estimation, [B, T].  arXiv:1506.02438 eq. 16; PPO, arXiv:1707.06347 eq. 11–12.

    δ_t = r_t + γ·V_{t+1} − V_t      Â_t = δ_t + γλ·Â_{t+1}      V_{T+1} = 0

    V_t is the value of the state in which token t is chosen. "Next" is the next token that the mask counts: padding on
    either side and a tool's tokens between turns change nothing, and rewards that stand there are not read.
    """
    advantage_BT = torch.zeros_like(value_BT)
    next_value_B = torch.zeros_like(value_BT[:, 0])
    next_advantage_B = torch.zeros_like(next_value_B)
    for t in reversed(range(value_BT.shape[1])):
        delta_B = reward_BT[:, t] + gamma * next_value_B - value_BT[:, t]
        here_B = delta_B + gamma * gae_lambda * next_advantage_B
        next_advantage_B = torch.where(mask_BT[:, t], here_B, next_advantage_B)
        next_value_B = torch.where(mask_BT[:, t], value_BT[:, t], next_value_B)
        advantage_BT[:, t] = kept(here_B, mask_BT[:, t])
    return advantage_BT


@torch.no_grad()
def value_targets(advantage_BT: Tensor, value_BT: Tensor, mask_BT: Tensor) -> Tensor:
    """G_t = Â_t + V_t, what the critic is fitted to: from the advantages before they are whitened."""
    return kept(advantage_BT + value_BT, mask_BT)


@torch.no_grad()
def discounted_returns(reward_BT: Tensor, mask_BT: Tensor, *, gamma: float) -> Tensor:
    """G_t = r_t + γ·G_{t+1} over the tokens that the mask counts, 0 elsewhere."""
    return gae_advantages(reward_BT, torch.zeros_like(reward_BT), mask_BT, gamma=gamma, gae_lambda=1.0)


@torch.no_grad()
def reinforce_plus_plus_advantages(reward_BT: Tensor, mask_BT: Tensor, *, gamma: float = 1.0) -> Tensor:
    """The whitened return-to-go of KL-shaped rewards, over the whole step's tokens.  REINFORCE++, arXiv:2501.03262.

    For a step that is spread over ranks: `discounted_returns`, the sum of all ranks' `Moments`, `whitened`.
    """
    return_BT = discounted_returns(reward_BT, mask_BT, gamma=gamma)
    return whitened(return_BT, mask_BT, moments=Moments.of(return_BT, mask_BT))


@dataclass(frozen=True, kw_only=True, slots=True)
class Moments:
    """Count, mean and Σ(x − mean)² of the counted tokens. Parts of a step add up to the moments of the whole."""

    count: int
    mean: float
    squares: float

    @classmethod
    def of(cls, value_BT: Tensor, mask_BT: Tensor) -> Moments:
        """The moments of one part, in float64; reads them on the host."""
        counted_N = value_BT[mask_BT].double()
        if not len(counted_N):
            return cls(count=0, mean=0.0, squares=0.0)
        mean = counted_N.mean()
        return cls(count=len(counted_N), mean=float(mean), squares=float((counted_N - mean).square().sum()))

    def __add__(self, other: Moments) -> Moments:
        count = self.count + other.count
        if not count:
            return self
        gap, share = other.mean - self.mean, other.count / count
        squares = self.squares + other.squares + gap * gap * self.count * share
        return Moments(count=count, mean=self.mean + gap * share, squares=squares)

    @property
    def variance(self) -> float:
        """Unbiased; 0 for fewer than two tokens."""
        return self.squares / (self.count - 1) if self.count > 1 else 0.0


@torch.no_grad()
def whitened(value_BT: Tensor, mask_BT: Tensor, *, moments: Moments) -> Tensor:
    """(x − μ)/√(σ² + 1e-8) over the counted tokens, σ² unbiased: for advantages."""
    return kept((value_BT - moments.mean) / math.sqrt(moments.variance + WHITEN_EPS), mask_BT)


@torch.no_grad()
def scaled_to_unit_std(value_BT: Tensor, mask_BT: Tensor, *, moments: Moments) -> Tensor:
    """`whitened` with the mean added back: for rewards, whose zero means something."""
    return kept(whitened(value_BT, mask_BT, moments=moments) + moments.mean, mask_BT)


@torch.no_grad()
def centered_advantages(reward_PG: Tensor, scored_PG: Tensor) -> Tensor:
    """A = r − mean_G(r).  Dr. GRPO, arXiv:2503.20783. Exactly 0 where all of a group score the same."""
    mean_P1 = _group_sum(reward_PG, scored_PG) / _group_size(scored_PG)
    # The mean of equal numbers may round off them; divided by a std of 0 + ε that would be a signal.
    return kept(reward_PG - mean_P1, scored_PG & informative_groups(reward_PG, scored_PG).unsqueeze(-1))


@torch.no_grad()
def standardized_advantages(reward_PG: Tensor, scored_PG: Tensor, *, eps: float = 1e-4) -> Tensor:
    """A = (r − mean_G(r)) / (std_G(r) + ε), std unbiased; 0 for a group of one.  GRPO, arXiv:2402.03300 §4.1.2.

    The paper names neither the kind of std nor ε. Unbiased: TRL, verl, OpenRLHF. ε: 1e-4 TRL, 1e-6 verl, 1e-9 OpenRLHF.
    """
    centered_PG = centered_advantages(reward_PG, scored_PG)
    freedom_P1 = (_group_size(scored_PG) - 1).clamp(min=1)
    std_P1 = (centered_PG.square().sum(dim=-1, keepdim=True) / freedom_P1).sqrt()
    return centered_PG / (std_P1 + eps)


@torch.no_grad()
def leave_one_out_advantages(reward_PG: Tensor, scored_PG: Tensor) -> Tensor:
    """A = r − mean of the others = (r − mean_G(r))·G/(G−1); 0 for a group of one.  RLOO, arXiv:2402.14740."""
    size_P1 = _group_size(scored_PG)
    return centered_advantages(reward_PG, scored_PG) * size_P1 / (size_P1 - 1).clamp(min=1)


@torch.no_grad()
def leave_one_out_standardized_advantages(reward_PG: Tensor, scored_PG: Tensor, *, eps: float = 1e-6) -> Tensor:
    """A = (r − mean of the others) / (unbiased std of the others + ε): NeMo-RL's GRPO.

    0 for a group of one. Where the others all score the same, or there is one other, their std is no scale, and the
    advantage stays unscaled instead of growing to 1/ε.
    """
    others_PGG = scored_PG.unsqueeze(-2) & ~torch.eye(reward_PG.shape[-1], dtype=torch.bool, device=reward_PG.device)
    size_PG = others_PGG.sum(dim=-1)
    mean_PG = kept(reward_PG.unsqueeze(-2).expand_as(others_PGG), others_PGG).sum(dim=-1) / size_PG.clamp(min=1)
    gap_PGG = kept(reward_PG.unsqueeze(-2) - mean_PG.unsqueeze(-1), others_PGG)
    std_PG = (gap_PGG.square().sum(dim=-1) / (size_PG - 1).clamp(min=1)).sqrt()
    scale_PG = torch.where(std_PG > eps, std_PG + eps, torch.ones_like(std_PG))
    return kept((reward_PG - mean_PG) / scale_PG, scored_PG & (size_PG > 0))


@torch.no_grad()
def informative_groups(reward_PG: Tensor, scored_PG: Tensor) -> Tensor:
    """True where a group's scores differ, [P]: the others have advantage 0 throughout.

    DAPO's dynamic sampling resamples until every group is (0 < correct < G, arXiv:2503.14476 §3.2).
    """
    lowest_P = reward_PG.masked_fill(~scored_PG, math.inf).amin(dim=-1)
    highest_P = reward_PG.masked_fill(~scored_PG, -math.inf).amax(dim=-1)
    # `not <=` rather than `>`: a scored NaN must reach the check for non-finite values, not vanish here.
    return ~(highest_P <= lowest_P) & (scored_PG.sum(dim=-1) > 1)


def per_token(advantage_B: Tensor, mask_BT: Tensor) -> Tensor:
    """One advantage for every token of the sequence, 0 outside the mask."""
    return kept(advantage_B.unsqueeze(-1).expand(mask_BT.shape), mask_BT)


def overlong_penalty(length_B: Tensor, *, max_tokens: int, buffer_tokens: int) -> Tensor:
    """DAPO's soft overlong punishment, in [−1, 0], to be added to the score.  arXiv:2503.14476 eq. 13.

    0 up to L − C tokens, (L − C − |y|)/C up to L, −1 beyond. Raises ValueError unless 0 < C ≤ L.
    """
    if not 0 < buffer_tokens <= max_tokens:
        raise ValueError(
            f"buffer_tokens={buffer_tokens} must lie between 1 and max_tokens={max_tokens}: it is the last stretch of "
            "the allowed length, where the penalty grows."
        )
    return ((max_tokens - buffer_tokens - length_B) / buffer_tokens).clamp(min=-1.0, max=0.0)


def lowered_without_eos(score_B: Tensor, ended_B: Tensor, *, penalty: float) -> Tensor:
    """Score − penalty where the completion never ended by itself (TRL's `missing_eos_penalty`)."""
    return torch.where(ended_B, score_B, score_B - penalty)


def replaced_without_eos(score_B: Tensor, ended_B: Tensor, *, score: float) -> Tensor:
    """A fixed score where the completion never ended by itself (torchtune; lm-human-preferences)."""
    return torch.where(ended_B, score_B, torch.full_like(score_B, score))


def _group_sum(value_PG: Tensor, scored_PG: Tensor) -> Tensor:
    return kept(value_PG, scored_PG).sum(dim=-1, keepdim=True)


def _group_size(scored_PG: Tensor) -> Tensor:
    return scored_PG.sum(dim=-1, keepdim=True).clamp(min=1)
