"""Which networks does a job have, and in which form? The headcount rules, one function a role."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

from headcount.facts.model_shape import ModelShape
from headcount.facts.models import find_model
from headcount.facts.optimizer import find_optimizer
from headcount.facts.precision import FrozenPrecision, find_frozen_precision, find_precision
from headcount.job.job import Adapter, Network, Placement, Tuning
from headcount.job.settings import Settings
from headcount.vocabulary import Algorithm, Role

__all__ = ["model_of", "networks_of"]


@cache
def model_of(name: str) -> ModelShape:
    """A model by name, folder or file; looked up once a process."""
    return find_model(name)


def networks_of(
    settings: Settings, rewards: list[Mapping[str, Any]], algorithm: Algorithm, groups: Mapping[str, str]
) -> dict[Role, Network]:
    """The networks of an algorithm by role. `groups` says which GPUs a role sits on (default: train)."""

    def group(role: Role) -> str:
        return groups.get(str(role), "train")

    if algorithm is Algorithm.REWARD_MODEL:
        return {Role.REWARD: _trained(settings, "policy", Role.REWARD, scalar_head=True)}
    policy = _trained(settings, "policy", Role.POLICY, scalar_head=False)
    networks = {Role.POLICY: policy}
    reward = _reward(rewards, policy, algorithm, group(Role.REWARD))
    if reward is not None:
        networks[Role.REWARD] = reward
    if algorithm is Algorithm.PPO:
        networks[Role.CRITIC] = _critic(settings, policy, reward, group(Role.CRITIC))
    reference = _reference(settings, policy, algorithm, group(Role.REFERENCE))
    if reference is not None:
        networks[Role.REFERENCE] = reference
    return networks


def _trained(settings: Settings, section: str, role: Role, *, scalar_head: bool) -> Network:
    tuning = Tuning(settings.get("policy.tuning"))
    return Network(
        role=role,
        shape=model_of(settings.get(f"{section}.model")),
        tuning=tuning,
        scalar_head=scalar_head,
        precision=find_precision(settings.get("policy.precision")),
        frozen=find_frozen_precision(_base(settings, tuning)),
        optimizer=find_optimizer(settings.get("policy.optimizer")),
        adapter=None if tuning is Tuning.FULL else _adapter(settings, section),
    )


def _base(settings: Settings, tuning: Tuning) -> str:
    if tuning is Tuning.QLORA and not settings.stated("policy.base_precision"):
        return settings.get(
            "policy.base_precision", "nf4", "QLoRA, arXiv:2305.14314: 4-bit NormalFloat, double quantised"
        )
    return settings.get("policy.base_precision")


def _adapter(settings: Settings, section: str) -> Adapter:
    def value(leaf: str, fallback: Any = None) -> Any:
        own = f"{section}.adapter.{leaf}"
        return settings.get(own if settings.stated(own) else f"policy.adapter.{leaf}", fallback)

    return Adapter(
        rank=int(value("rank")),
        targets=tuple(value("targets")),
        weight_bytes=2 if value("dtype") == "bf16" else 4,
        dropout=float(value("dropout")),
        extra_trained=tuple(value("extra_trained", ())),
    )


def _frozen(role: Role, shape: ModelShape, policy: Network, *, scalar_head: bool, **more: Any) -> Network:
    return Network(
        role=role,
        shape=shape,
        tuning=Tuning.FROZEN,
        scalar_head=scalar_head,
        precision=policy.precision,
        frozen=more.pop("frozen", None) or find_frozen_precision("bf16"),
        optimizer=policy.optimizer,
        **more,
    )


def _reward(rewards: list[Mapping[str, Any]], policy: Network, algorithm: Algorithm, group: str) -> Network | None:
    """A reward network exists only for `kind = "model"`; PPO without any [[reward]] has one of the policy's shape."""
    if not algorithm.online:
        return None
    models = [row for row in rewards if row["kind"] == "model"]
    if not models and (rewards or algorithm is not Algorithm.PPO):
        return None
    row = models[0] if models else {}
    shape = model_of(row["model"]) if "model" in row else policy.shape
    frozen = find_frozen_precision(row.get("base_precision", "bf16"))
    placement = Placement(row.get("placement", "device"))
    return _frozen(Role.REWARD, shape, policy, scalar_head=True, frozen=frozen, placement=placement, group=group)


def _critic(settings: Settings, policy: Network, reward: Network | None, group: str) -> Network:
    """As large as the reward model it starts from, else as the policy; a shared trunk: an adapter and a scalar head."""
    trunk = settings.get("critic.trunk")
    if trunk is not None:
        shape = policy.shape if trunk == "policy" else (reward or policy).shape
        return Network(
            role=Role.CRITIC,
            shape=shape,
            tuning=policy.tuning if policy.adapter else Tuning.LORA,
            scalar_head=True,
            precision=policy.precision,
            frozen=policy.frozen if trunk == "policy" else (reward or policy).frozen,
            optimizer=policy.optimizer,
            adapter=policy.adapter or _adapter(settings, "critic"),
            weights_of=Role.POLICY if trunk == "policy" else Role.REWARD,
            group=policy.group if trunk == "policy" else (reward or policy).group,
        )
    own = settings.get("critic.model")
    start = (
        reward
        if reward is not None and settings.get("critic.init_from", "reward", "as InstructGPT") == "reward"
        else policy
    )
    tuning = Tuning(settings.get("critic.tuning", policy.tuning, "as the policy"))
    return Network(
        role=Role.CRITIC,
        shape=model_of(own) if own else start.shape,
        tuning=tuning,
        scalar_head=True,
        precision=find_precision(settings.get("critic.precision", policy.precision.name, "as the policy")),
        frozen=_critic_base(settings, tuning, policy),
        optimizer=find_optimizer(settings.get("critic.optimizer", policy.optimizer.name, "as the policy")),
        adapter=None if tuning is Tuning.FULL else _adapter(settings, "critic"),
        group=group,
    )


def _critic_base(settings: Settings, tuning: Tuning, policy: Network) -> FrozenPrecision:
    if not settings.stated("critic.base_precision"):
        return find_frozen_precision("nf4") if tuning is Tuning.QLORA else policy.frozen
    return find_frozen_precision(settings.get("critic.base_precision"))


def _reference(settings: Settings, policy: Network, algorithm: Algorithm, group: str) -> Network | None:
    """Needed by DPO always, by PPO and GRPO while a KL term pulls; a LoRA policy is its own reference, adapter off."""
    if algorithm is Algorithm.SFT or not _kl_pulls(settings, algorithm):
        return None
    usual, why = (
        (Placement.ADAPTER_OFF, "the base without adapters is the reference: no weights of its own")
        if policy.adapter is not None and not settings.given("reference.model")
        else (Placement.DEVICE, "a frozen copy on the GPU")
    )
    placement = Placement(settings.get("reference.placement", str(usual), why))
    if placement is Placement.NONE:
        return None
    name = settings.get("reference.model")
    return _frozen(
        Role.REFERENCE,
        model_of(name) if name else policy.shape,
        policy,
        scalar_head=False,
        frozen=policy.frozen
        if placement is Placement.ADAPTER_OFF
        else find_frozen_precision(settings.get("reference.base_precision")),
        placement=placement,
        weights_of=Role.POLICY if placement is Placement.ADAPTER_OFF else None,
        group=policy.group if placement is Placement.ADAPTER_OFF else group,
    )


def _kl_pulls(settings: Settings, algorithm: Algorithm) -> bool:
    """A reference is needed while a KL term counts: in PPO's reward, in GRPO's loss or reward, in DPO always."""
    if algorithm is Algorithm.DPO:
        return True
    keys = ("update.kl_coef",) if algorithm is Algorithm.PPO else ("update.beta", "update.kl_coef")
    asked = settings.given("reference.placement") and settings.get("reference.placement") != "none"
    if asked and not any(settings.given(key) for key in keys):
        return True  # who places a reference wants one, whatever the coefficient's default
    return any(float(settings.get(key)) > 0 for key in keys if settings.stated(key) or key == keys[0])
