"""How far has the policy moved from the reference, judged on sampled tokens?

d = ℓ − ℓʳ (`logprobs.log_ratio`), y ~ π_θ. k1 and k3 have the mean KL(π_θ‖π_ref); k2 does not.
In a loss it is the gradient that counts, and there the order turns (y ~ π_θ, mean gradient):

    k1   ∇ℓ               zero: no pressure at all. For the reward only.
    k2   d·∇ℓ             ∇KL(π_θ‖π_ref)
    k3   (1 − e^{−d})·∇ℓ  ∇KL(π_ref‖π_θ), equal to k2's to first order in d
    ρ·k3 with ρ = π_θ/π_old differentiated: ∇KL(π_θ‖π_ref), also where the samples are from π_old

Estimators: J. Schulman, "Approximating KL divergence", http://joschu.net/blog/kl-approx.html.
Shape letters: B sequences · T response tokens.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import torch
from torch import Tensor

from headcount.objectives.reduce import kept

__all__ = ["KL_ESTIMATORS", "adapted_kl_coef", "k1", "k2", "k3", "k3_with_k2_gradient", "kl_shaped_rewards"]

MAX_EXPONENT = 20.0  # e^20 = 4.9e8; verl and NeMo-RL clamp there too


def k1(log_ratio_BT: Tensor) -> Tensor:
    """The log-ratio itself, per token: unbiased, can be negative. As a loss it has no mean gradient."""
    return log_ratio_BT


def k2(log_ratio_BT: Tensor) -> Tensor:
    """d²/2 per token: biased in value, the reverse KL's gradient in the mean on-policy."""
    return log_ratio_BT.square() / 2


def k3(log_ratio_BT: Tensor) -> Tensor:
    """e^{−d} − 1 + d ≥ 0 per token: unbiased.  GRPO, arXiv:2402.03300 eq. 4.

    Beyond d = −20 the exponential goes on as its tangent: finite in value and gradient for every finite d, still
    pulling the right way. (A clamp would leave −e^{−d} out and turn the pull round.) float16 turns at −10.
    """
    wide_BT = log_ratio_BT.to(torch.promote_types(log_ratio_BT.dtype, torch.float32))
    # Half the range of the input's dtype: the gradient is cast back to it.
    limit = min(MAX_EXPONENT, math.log(torch.finfo(log_ratio_BT.dtype).max) - 1)
    exponent_BT = (-wide_BT).clamp(max=limit)
    inside_BT = torch.expm1(exponent_BT) + wide_BT
    tangent_BT = math.exp(limit) * (1 - wide_BT - limit) - 1 + wide_BT
    return torch.where(-wide_BT <= limit, inside_BT, tangent_BT)


def k3_with_k2_gradient(log_ratio_BT: Tensor) -> Tensor:
    """The value of k3 and the gradient of k2: a low-variance figure, the reverse KL's pressure (verl's `k3+`)."""
    k2_BT = k2(log_ratio_BT)
    return k2_BT + (k3(log_ratio_BT) - k2_BT).detach()


KL_ESTIMATORS: Mapping[str, Callable[[Tensor], Tensor]] = {"k1": k1, "k2": k2, "k3": k3, "k3+": k3_with_k2_gradient}


def kl_shaped_rewards(score_B: Tensor, kl_BT: Tensor, mask_BT: Tensor, *, kl_coef: float) -> Tensor:
    """r_t = −β·kl_t + 1[t last]·R, [B, T].  Ziegler et al., arXiv:1909.08593 eq. 2; InstructGPT, 2203.02155 eq. 2.

    R lands on the last counted token, 0 outside the mask; no gradient. Raises ValueError where a row has no token to
    carry its score.
    """
    if not bool(mask_BT.any(dim=-1).all()):
        rows = (~mask_BT.any(dim=-1)).nonzero().flatten().tolist()
        raise ValueError(f"rows {rows} have no response token, so their score has nowhere to go: drop them first.")
    # The first maximum from the right is the last true.
    last_B = mask_BT.shape[-1] - 1 - mask_BT.flip(-1).int().argmax(dim=-1)
    reward_BT = kept(-kl_coef * kl_BT.detach(), mask_BT)
    return reward_BT.scatter_add(-1, last_B.unsqueeze(-1), score_B.detach().to(reward_BT.dtype).unsqueeze(-1))


def adapted_kl_coef(kl_coef: float, *, observed_kl: float, target_kl: float, sequences: int, horizon: int) -> float:
    """β·(1 + clip(KL/target − 1, ±0.2)·n/horizon).  Ziegler et al., arXiv:1909.08593 §2.2.

    KL in nats per sequence; n and the horizon in sequences. Raises ValueError for a KL that is not finite or a target
    or horizon that is not positive.
    """
    if not (math.isfinite(observed_kl) and target_kl > 0 and horizon > 0):
        raise ValueError(
            f"observed_kl={observed_kl}, target_kl={target_kl}, horizon={horizon}: the controller needs a finite KL "
            "and a positive target and horizon. Look at the log-probs of the last step."
        )
    error = min(max(observed_kl / target_kl - 1, -0.2), 0.2)
    return kl_coef * (1 + error * sequences / horizon)
