"""How far is the critic from the returns, and how much of them does it explain?

Shape letters: B sequences · T response tokens.
"""

from __future__ import annotations

import torch
from torch import Tensor

from headcount.objectives.advantages import Moments
from headcount.objectives.reduce import kept

__all__ = ["clipped_value_loss", "explained_variance", "is_value_clipped", "value_loss"]


def value_loss(value_BT: Tensor, target_BT: Tensor, mask_BT: Tensor) -> Tensor:
    """½(V − G)² per token, 0 outside the mask.  PPO, arXiv:1707.06347 eq. 9, with the ½ of the implementations."""
    return kept(value_BT - target_BT, mask_BT).square() / 2


def clipped_value_loss(
    value_BT: Tensor, old_value_BT: Tensor, target_BT: Tensor, mask_BT: Tensor, *, clip: float
) -> Tensor:
    """½·max((V − G)², (clip(V, V° ± ε) − G)²) per token, 0 outside the mask.

    Not in the PPO paper: OpenAI baselines, `ppo2/model.py`. ε has the unit of the returns, unlike the policy's.
    """
    clipped_BT = old_value_BT + (value_BT - old_value_BT).clamp(min=-clip, max=clip)
    squared_BT = kept(value_BT - target_BT, mask_BT).square()
    return torch.maximum(squared_BT, kept(clipped_BT - target_BT, mask_BT).square()) / 2


def is_value_clipped(
    value_BT: Tensor, old_value_BT: Tensor, target_BT: Tensor, mask_BT: Tensor, *, clip: float
) -> Tensor:
    """True where the clip stops the critic's gradient: V has left V° ± ε on its way to G."""
    moved_BT = value_BT - old_value_BT
    clipped_BT = old_value_BT + moved_BT.clamp(min=-clip, max=clip)
    return mask_BT & (moved_BT.abs() > clip) & ((clipped_BT - target_BT).abs() > (value_BT - target_BT).abs())


def explained_variance(value_BT: Tensor, target_BT: Tensor, mask_BT: Tensor) -> float:
    """1 − Var(G − V)/Var(G): 1 perfect, 0 no better than a constant. NaN where the targets do not vary."""
    target_variance = Moments.of(target_BT, mask_BT).variance
    if target_variance == 0:
        return float("nan")
    return 1 - Moments.of(target_BT - value_BT, mask_BT).variance / target_variance
