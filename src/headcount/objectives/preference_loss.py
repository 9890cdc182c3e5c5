"""What does one pair (or one judged answer) add to the loss of DPO and its kin, or of a reward model?

One number per pair, to be minimised; the loop divides the sum by the pairs of the whole optimizer step. Log-probs of
sequences come from `logprobs.sequence_logprob` (sums) or `mean_logprob` (per token); which one a loss takes is in the
name of its argument.

Shape letters: B pairs (or answers) · P prompts · K ranked answers of one prompt.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

__all__ = [
    "Agreement", "agreement", "bradley_terry_loss", "centering_penalty", "conservative_dpo_loss", "dpo_loss",
    "hinge_loss", "ipo_loss", "kto_loss", "kto_reference_point", "odds_ratio_loss", "preference_margin",
    "ranking_loss", "robust_dpo_loss", "simpo_loss",
]  # fmt: skip

NEARLY_CERTAIN = -1e-6  # nats per token


def preference_margin(chosen_B: Tensor, rejected_B: Tensor, ref_chosen_B: Tensor, ref_rejected_B: Tensor) -> Tensor:
    """h = (ℓ_w − ℓʳ_w) − (ℓ_l − ℓʳ_l): how much more than the reference the policy prefers the chosen answer.

    Of sums for DPO; of sums or of means, all four alike, for IPO. Exactly 0 while policy and reference agree. The
    reference is a constant here.
    """
    return (chosen_B - ref_chosen_B.detach()) - (rejected_B - ref_rejected_B.detach())


def dpo_loss(margin_B: Tensor, *, beta: float) -> Tensor:
    """−log σ(βh).  DPO, arXiv:2305.18290 eq. 7.  ln 2 at h = 0;  ∂L/∂ℓ_w = −β·σ(−βh) = −∂L/∂ℓ_l."""
    return -logsigmoid(beta * margin_B)


def conservative_dpo_loss(margin_B: Tensor, *, beta: float, label_smoothing: float) -> Tensor:
    """(1−s)·(−log σ(βh)) + s·(−log σ(−βh)), labels wrong with chance s: cDPO.

    E. Mitchell, "A note on DPO with noisy preferences and relationship to IPO" (2023) eq. 3. The minimum is at
    σ(βh) = 1 − s. Raises ValueError unless 0 ≤ s < ½.
    """
    smoothing = _smoothing(label_smoothing)
    return (1 - smoothing) * dpo_loss(margin_B, beta=beta) + smoothing * dpo_loss(-margin_B, beta=beta)


def robust_dpo_loss(margin_B: Tensor, *, beta: float, label_smoothing: float) -> Tensor:
    """((1−s)·(−log σ(βh)) − s·(−log σ(−βh))) / (1−2s).  Robust DPO, arXiv:2403.00409.

    Its mean over labels flipped with chance s is the DPO loss of the true labels. Raises ValueError unless 0 ≤ s < ½.
    """
    smoothing = _smoothing(label_smoothing)
    loss_B = (1 - smoothing) * dpo_loss(margin_B, beta=beta) - smoothing * dpo_loss(-margin_B, beta=beta)
    return loss_B / (1 - 2 * smoothing)


def ipo_loss(margin_B: Tensor, *, beta: float) -> Tensor:
    """(h − 1/(2β))².  IPO, arXiv:2310.12036 eq. 17.

    Of `preference_margin` on sums: the paper's letter and OpenRLHF; on means per token: TRL, confirmed there with the
    authors. The same β means different things: name the one that was used.
    """
    return (margin_B - 1 / (2 * beta)).square()


def hinge_loss(margin_B: Tensor, *, beta: float) -> Tensor:
    """max(0, 1 − βh).  SLiC, arXiv:2305.10425, on DPO's reward as RSO does, arXiv:2309.06657."""
    return (1 - beta * margin_B).clamp(min=0)


def simpo_loss(chosen_mean_B: Tensor, rejected_mean_B: Tensor, *, beta: float, gamma: float) -> Tensor:
    """−log σ(β·(ℓ̄_w − ℓ̄_l) − γ) with log-probs per token and no reference.  SimPO, arXiv:2405.14734 eq. 6."""
    return -logsigmoid(beta * (chosen_mean_B - rejected_mean_B) - gamma)


def odds_ratio_loss(chosen_mean_B: Tensor, rejected_mean_B: Tensor) -> Tensor:
    """−log σ(log odds_w − log odds_l), odds = p/(1−p) of the mean log-prob.  ORPO, arXiv:2403.07691 eq. 7.

    ORPO is the chosen answer's NLL + λ times this (eq. 6). A p nearer to 1 than 1e-6 counts as that near.
    """
    return -logsigmoid(_log_odds(chosen_mean_B) - _log_odds(rejected_mean_B))


def kto_reference_point(mismatched_log_ratio_B: Tensor) -> Tensor:
    """z₀ = max(0, mean of ℓ − ℓʳ over answers paired with other prompts), a scalar constant.  arXiv:2402.01306 §4.1.

    The mean is the batch's: over ranks, average before the maximum.
    """
    return mismatched_log_ratio_B.detach().mean().clamp(min=0)


def kto_loss(
    log_ratio_B: Tensor,
    desirable_B: Tensor,
    reference_point: Tensor,
    *,
    beta: float,
    desirable_weight: float = 1.0,
    undesirable_weight: float = 1.0,
) -> Tensor:
    """λ_y − v: λ_D·(1 − σ(β(r − z₀))) if desirable, λ_U·(1 − σ(β(z₀ − r))) if not.  KTO, arXiv:2402.01306 eq. 7–8.

    r = ℓ − ℓʳ summed over the completion, [B]; `desirable_B` bool. At r = z₀ it is λ/2.
    """
    gap_B = beta * (log_ratio_B - reference_point.detach())
    # 1 − σ(x) = σ(−x), without the cancellation.
    return torch.where(desirable_B, desirable_weight * (-gap_B).sigmoid(), undesirable_weight * gap_B.sigmoid())


def bradley_terry_loss(chosen_score_B: Tensor, rejected_score_B: Tensor, margin_B: Tensor) -> Tensor:
    """−log σ(r_w − r_l − m).  InstructGPT, arXiv:2203.02155 eq. 1; DPO, arXiv:2305.18290 eq. 2; m: Llama 2, eq. 2.

    A margin of 0 is the plain loss. Only differences count: see `centering_penalty`.
    """
    return -logsigmoid(chosen_score_B - rejected_score_B - margin_B)


def centering_penalty(chosen_score_B: Tensor, rejected_score_B: Tensor) -> Tensor:
    """(r_w + r_l)², times c (0.01 as a rule) beside the loss: settles the free constant.  arXiv:2312.09244 eq. 2."""
    return (chosen_score_B + rejected_score_B).square()


def ranking_loss(score_PK: Tensor) -> Tensor:
    """Mean of −log σ(r_w − r_l) over the C(K, 2) pairs of each prompt, [P], best answer first.

    InstructGPT, arXiv:2203.02155 eq. 1. Raises ValueError for fewer than two answers.
    """
    answers = score_PK.shape[-1]
    if answers < 2:
        raise ValueError(f"{answers} answer(s) of a prompt make no pair: a ranking has at least two.")
    better, worse = torch.triu_indices(answers, answers, offset=1, device=score_PK.device)
    return -logsigmoid(score_PK[..., better] - score_PK[..., worse]).mean(dim=-1)


@dataclass(frozen=True, kw_only=True, slots=True)
class Agreement:
    """How many of the pairs are ranked as labelled. Ties are apart: at h = 0 nothing is preferred yet."""

    wins: int
    ties: int
    pairs: int

    def __add__(self, other: Agreement) -> Agreement:
        return Agreement(wins=self.wins + other.wins, ties=self.ties + other.ties, pairs=self.pairs + other.pairs)

    @property
    def accuracy(self) -> float:
        """Wins over pairs that are not tied; NaN when all are."""
        decided = self.pairs - self.ties
        return self.wins / decided if decided else float("nan")


def agreement(margin_B: Tensor) -> Agreement:
    """Counts of h > 0 and h = 0 (or of r_w − r_l); reads them on the host."""
    return Agreement(wins=int((margin_B > 0).sum()), ties=int((margin_B == 0).sum()), pairs=margin_B.numel())


def _log_odds(mean_B: Tensor) -> Tensor:
    below_B = mean_B.clamp(max=NEARLY_CERTAIN)
    return below_B - torch.log(-torch.expm1(below_B))


def _smoothing(share: float) -> float:
    if not 0 <= share < 0.5:
        raise ValueError(
            f"label_smoothing={share} is the chance that a label is wrong and must lie in [0, 0.5): at one half the "
            "labels say nothing, beyond it they are reversed."
        )
    return share
