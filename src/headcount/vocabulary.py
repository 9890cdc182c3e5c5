"""What is awake, in which state, in each phase of each algorithm?

The one table at the centre. The planner makes its rows from it, the trainers are scheduled by it, the meter labels
its observations with it and the docs print it: predicted and observed join on (phase, role, item) because both were
born here.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

__all__ = ["TABLE", "Algorithm", "Basis", "Level", "Phase", "Role", "State", "Tier", "Verdict", "phases_of", "tier_of"]


class Algorithm(StrEnum):
    """How the policy is trained."""

    PPO = "ppo"
    GRPO = "grpo"
    DPO = "dpo"
    REWARD_MODEL = "reward-model"
    SFT = "sft"

    @property
    def online(self) -> bool:
        """True when the policy generates its own training data."""
        return self in (Algorithm.PPO, Algorithm.GRPO)

    @property
    def pairs(self) -> bool:
        """True when one row of data is two sequences, chosen and rejected."""
        return self in (Algorithm.DPO, Algorithm.REWARD_MODEL)


class Role(StrEnum):
    """A network's job."""

    POLICY = "policy"
    CRITIC = "critic"
    REFERENCE = "reference"
    REWARD = "reward"
    GENERATOR = "generator"


class Tier(StrEnum):
    """What a role keeps: everything an optimizer needs, or weights alone."""

    TRAINABLE = "trainable"
    FROZEN = "frozen"


class Phase(StrEnum):
    """A stretch of a step with a fixed set of roles awake."""

    LOAD = "load"
    CACHE = "cache"
    GENERATE = "generate"
    SCORE = "score"
    UPDATE = "update"
    SYNC = "sync"
    SAVE = "save"
    EVAL = "eval"


class State(StrEnum):
    """What of a role can be in memory."""

    WEIGHTS = "weights"
    GRADIENTS = "gradients"
    OPTIMIZER = "optimizer state"
    FORWARD = "forward activations"
    BACKWARD = "backward activations"
    LOGITS = "logits"
    VALUES = "values"
    KV_CACHE = "kv cache"


class Basis(StrEnum):
    """Why a predicted number is believed."""

    EXACT = "exact"
    DATASHEET = "datasheet"
    CALIBRATED = "calibrated"
    ASSUMED = "assumed"


class Level(StrEnum):
    """Four ways to count the same memory; the last one decides out-of-memory."""

    ACTIVE = "active"
    ALLOCATED = "allocated"
    RESERVED = "reserved"
    DEVICE_USED = "device-used"


class Verdict(StrEnum):
    """The answer to "does it fit?"."""

    FITS = "fits"
    UNCERTAIN = "uncertain"
    DOES_NOT_FIT = "does not fit"

    @property
    def exit_code(self) -> int:
        """0, 3 or 4; 2 is kept for wrong input."""
        return {Verdict.FITS: 0, Verdict.UNCERTAIN: 3, Verdict.DOES_NOT_FIT: 4}[self]


_W, _G, _O = State.WEIGHTS, State.GRADIENTS, State.OPTIMIZER
_F, _B, _L, _V, _KV = State.FORWARD, State.BACKWARD, State.LOGITS, State.VALUES, State.KV_CACHE

_ASLEEP_TRAINABLE = frozenset({_W, _O})
_ASLEEP_FROZEN = frozenset({_W})
_UPDATE = frozenset({_W, _G, _O, _F, _B})

_SCORE_LOGPROBS = frozenset({_W, _F, _L})
_SCORE_VALUES = frozenset({_W, _F, _V})

Residency = Mapping[Phase, Mapping[Role, frozenset[State]]]


def _quiet(*, trainable: tuple[Role, ...], frozen: tuple[Role, ...]) -> dict[Role, frozenset[State]]:
    """Every network resting: what a phase starts from before it wakes somebody."""
    return dict.fromkeys(trainable, _ASLEEP_TRAINABLE) | dict.fromkeys(frozen, _ASLEEP_FROZEN)


def _offline(
    trainable: Role, output: State, frozen: tuple[Role, ...] = ()
) -> dict[Phase, dict[Role, frozenset[State]]]:
    """SFT, reward model, DPO: one network trains; frozen ones only look on."""
    quiet = _quiet(trainable=(trainable,), frozen=frozen)
    return {
        Phase.LOAD: {role: frozenset({_W}) for role in quiet},
        Phase.UPDATE: quiet | {trainable: _UPDATE | {output}} | dict.fromkeys(frozen, _SCORE_LOGPROBS),
        Phase.SAVE: quiet,
        Phase.EVAL: quiet | {trainable: frozenset({_W, _O, _F, output})},
    }


def _online(trainable: tuple[Role, ...], frozen: tuple[Role, ...]) -> dict[Phase, dict[Role, frozenset[State]]]:
    """PPO, GRPO: generate, score, update, sync."""
    quiet = _quiet(trainable=trainable, frozen=frozen)
    generate = quiet | {Role.GENERATOR: frozenset({_W, _KV})}
    score = quiet | {Role.POLICY: _SCORE_LOGPROBS | {_O}, Role.REFERENCE: _SCORE_LOGPROBS, Role.REWARD: _SCORE_VALUES}
    update = quiet | {Role.POLICY: _UPDATE | {_L}}
    if Role.CRITIC in trainable:
        score[Role.CRITIC] = _SCORE_VALUES | {_O}
        update[Role.CRITIC] = _UPDATE | {_V}
    return {
        Phase.LOAD: {role: frozenset({_W}) for role in (*quiet, Role.GENERATOR)},
        Phase.GENERATE: generate,
        Phase.SCORE: score,
        Phase.UPDATE: update,
        Phase.SYNC: quiet | {Role.GENERATOR: frozenset({_W})},
        Phase.SAVE: quiet,
        Phase.EVAL: generate,
    }


TABLE: Mapping[Algorithm, Residency] = {
    Algorithm.PPO: _online((Role.POLICY, Role.CRITIC), (Role.REFERENCE, Role.REWARD)),
    Algorithm.GRPO: _online((Role.POLICY,), (Role.REFERENCE, Role.REWARD)),
    # CACHE is the one-time reference pass of DPO with `reference = "cached"`.
    Algorithm.DPO: _offline(Role.POLICY, _L, (Role.REFERENCE,)) | {Phase.CACHE: {Role.REFERENCE: _SCORE_LOGPROBS}},
    Algorithm.REWARD_MODEL: _offline(Role.REWARD, _V),
    Algorithm.SFT: _offline(Role.POLICY, _L),
}


def phases_of(algorithm: Algorithm) -> tuple[Phase, ...]:
    """The phases of an algorithm, in the order in which they first happen."""
    return tuple(phase for phase in Phase if phase in TABLE[algorithm])


def tier_of(algorithm: Algorithm, role: Role) -> Tier:
    """Trainable when any phase keeps gradients for the role; frozen otherwise."""
    rows = TABLE[algorithm].values()
    return Tier.TRAINABLE if any(_G in states.get(role, ()) for states in rows) else Tier.FROZEN
