"""One plain step of each algorithm, written as the textbook writes it, with its peaks taken phase by phase.

The second step is measured, so that the optimizer's states exist. Shape letters: B rows · T tokens · C completion.
"""

from __future__ import annotations

import gc
from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.nn.functional import logsigmoid

from tests.ground_truth.models import Built, build
from tests.ground_truth.tracker import Tracker


@dataclass(frozen=True)
class Case:
    """What to run. A pair algorithm's rows are chosen and rejected together."""

    family: str
    algorithm: str
    checkpointing: bool = False
    lora_rank: int = 0
    rows: int = 16
    row_tokens: int = 64
    completion_tokens: int = 32
    reference: bool = True
    foreach: bool = False
    changes: dict = field(default_factory=dict)


@dataclass
class Measured:
    """Peak bytes by what was going on, everything resident included; and state by kind."""

    peaks: dict[str, int] = field(default_factory=dict)
    weights: int = 0
    gradients: int = 0
    optimizer: int = 0


class Step:
    """One GPU's networks, optimizers and tracker."""

    def __init__(self, case: Case) -> None:
        self.case = case
        self.mode = FakeTensorMode(allow_non_fake_inputs=True)
        self.nets: dict[str, Built] = {}
        self.optimizers: dict[str, torch.optim.Optimizer] = {}

    def train(self, role: str, *, scalar: bool) -> None:
        case = self.case
        net = build(
            case.family,
            mode=self.mode,
            scalar=scalar,
            checkpointing=case.checkpointing,
            lora_rank=case.lora_rank,
            **case.changes,
        )
        self.nets[role] = net
        how = {"foreach": True} if case.foreach else {"fused": True}
        self.optimizers[role] = torch.optim.AdamW(net.trained(), lr=1e-6, **how)

    def freeze(self, role: str, *, scalar: bool) -> None:
        self.nets[role] = build(self.case.family, mode=self.mode, scalar=scalar, frozen=True, **self.case.changes)

    def tokens(self, rows: int) -> Tensor:
        return torch.zeros(rows, self.case.row_tokens, dtype=torch.long)


def completion_logprobs(model: torch.nn.Module, token_BT: Tensor, completion: int) -> Tensor:
    """log π of the completion's tokens: the head runs on C + 1 positions, the last one predicts nothing."""
    logit_BCV = model(token_BT, use_cache=False, logits_to_keep=completion + 1).logits[:, :-1]
    return logit_BCV.log_softmax(-1).gather(-1, token_BT[:, -completion:, None]).squeeze(-1)


def sft_loss(step: Step, token_BT: Tensor) -> Tensor:
    return step.nets["policy"].model(token_BT, labels=token_BT, use_cache=False).loss


def dpo_loss(step: Step, token_BT: Tensor) -> Tensor:
    completion = step.case.completion_tokens
    ref_B = torch.zeros(token_BT.shape[0])
    if step.case.reference:
        with torch.no_grad():
            frozen = step.nets.get("reference", step.nets["policy"])
            ref_B = adapter_off(frozen, lambda model: completion_logprobs(model, token_BT, completion)).sum(-1)
    logp_B = completion_logprobs(step.nets["policy"].model, token_BT, completion).sum(-1)
    chosen, rejected = (logp_B - ref_B).chunk(2)
    return -logsigmoid(0.1 * (chosen - rejected)).mean()


def adapter_off(net: Built, run: Callable) -> Tensor:
    """A LoRA policy is its own reference: the base without adapters."""
    if hasattr(net.model, "disable_adapter"):
        with net.model.disable_adapter():
            return run(net.model)
    return run(net.model)


def reward_loss(step: Step, token_BT: Tensor) -> Tensor:
    chosen, rejected = step.nets["reward"].model(token_BT)[:, -1].chunk(2)
    return -logsigmoid(chosen - rejected).mean()


def policy_loss(step: Step, token_BT: Tensor) -> Tensor:
    """Clipped surrogate, arXiv:1707.06347 eq. 7, with known old log-probs and advantages."""
    completion = step.case.completion_tokens
    logp_BC = completion_logprobs(step.nets["policy"].model, token_BT, completion)
    ratio_BC = (logp_BC - torch.zeros_like(logp_BC)).exp()
    return -torch.minimum(ratio_BC, ratio_BC.clamp(0.8, 1.2)).mean()


def value_loss(step: Step, token_BT: Tensor) -> Tensor:
    value_BT = step.nets["critic"].model(token_BT)
    return (value_BT - torch.zeros_like(value_BT)).square().mean()


LOSSES = {"sft": ("policy", sft_loss), "dpo": ("policy", dpo_loss), "reward-model": ("reward", reward_loss),
          "ppo": ("policy", policy_loss), "grpo": ("policy", policy_loss)}  # fmt: skip


def networks(step: Step) -> None:
    """Who is resident, as the table says."""
    case = step.case
    if case.algorithm == "reward-model":
        step.train("reward", scalar=True)
        return
    step.train("policy", scalar=False)
    if case.algorithm == "ppo":
        step.train("critic", scalar=True)
        step.freeze("reward", scalar=True)
    if case.reference and case.algorithm in ("dpo", "ppo", "grpo") and not case.lora_rank:
        step.freeze("reference", scalar=False)


def measure(case: Case) -> Measured:
    """Run two steps, take the second one's peaks."""
    step = Step(case)
    networks(step)
    measured = Measured()
    with step.mode:
        token_BT = step.tokens(case.rows)
        tracker = Tracker([*(state for net in step.nets.values() for state in net.states), token_BT])
        base = sum(_storages(state for net in step.nets.values() for state in net.states).values())
        measured.weights = sum(_storages(p for net in step.nets.values() for p in net.model.parameters()).values())
        with tracker:
            for _ in range(2):
                if case.algorithm in ("ppo", "grpo"):
                    _score(step, token_BT, tracker, measured, base)
                updates = [LOSSES[case.algorithm]] + ([("critic", value_loss)] if case.algorithm == "ppo" else [])
                for role, loss in updates:
                    _update(step, role, loss, token_BT, tracker, measured, base)
    return measured


def _update(step: Step, role: str, loss: Callable, token_BT: Tensor, tracker: Tracker, measured: Measured, base: int):
    optimizer = step.optimizers[role]
    tracker.reset_peak()
    loss(step, token_BT).backward()
    measured.peaks[f"update/{role}/backward"] = base + tracker.peak
    measured.gradients = sum(p.grad.untyped_storage().nbytes() for p in step.nets[role].trained())
    tracker.reset_peak()
    optimizer.step()
    measured.peaks[f"update/{role}/optimizer step"] = base + tracker.peak
    states = (value for state in optimizer.state.values() for value in state.values() if torch.is_tensor(value))
    measured.optimizer = sum(value.untyped_storage().nbytes() for value in states if value.dim())
    optimizer.zero_grad(set_to_none=True)
    gc.collect()


def _score(step: Step, token_BT: Tensor, tracker: Tracker, measured: Measured, base: int) -> None:
    completion = step.case.completion_tokens
    for role, net in step.nets.items():
        tracker.reset_peak()
        with torch.no_grad():
            out = (
                net.model(token_BT)
                if role in ("critic", "reward")
                else completion_logprobs(net.model, token_BT, completion)
            )
        measured.peaks[f"score/{role}"] = base + tracker.peak
        del out


def _storages(tensors) -> dict[int, int]:
    return {tensor.untyped_storage()._cdata: tensor.untyped_storage().nbytes() for tensor in tensors}
