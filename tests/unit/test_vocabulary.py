"""The table at the centre: who is awake, in which state (design: PPO four networks, GRPO no critic, DPO two)."""

import pytest

from headcount.vocabulary import TABLE, Algorithm, Phase, Role, State, Tier, phases_of, tier_of


@pytest.mark.parametrize(
    ("algorithm", "trainable", "frozen"),
    [
        (Algorithm.PPO, {Role.POLICY, Role.CRITIC}, {Role.REFERENCE, Role.REWARD, Role.GENERATOR}),
        (Algorithm.GRPO, {Role.POLICY}, {Role.REFERENCE, Role.REWARD, Role.GENERATOR}),
        (Algorithm.DPO, {Role.POLICY}, {Role.REFERENCE}),
        (Algorithm.REWARD_MODEL, {Role.REWARD}, set()),
        (Algorithm.SFT, {Role.POLICY}, set()),
    ],
)
def test_who_trains_and_who_is_frozen(algorithm, trainable, frozen):
    roles = {role for states in TABLE[algorithm].values() for role in states}
    assert {role for role in roles if tier_of(algorithm, role) is Tier.TRAINABLE} == trainable
    assert {role for role in roles if tier_of(algorithm, role) is Tier.FROZEN} == frozen


def test_only_the_generator_has_a_kv_cache():
    # Reference and reward run one forward over known tokens: nothing is decoded, so nothing is cached.
    holders = {
        (phase, role)
        for residency in TABLE.values()
        for phase, roles in residency.items()
        for role, states in roles.items()
        if State.KV_CACHE in states
    }
    assert holders == {(Phase.GENERATE, Role.GENERATOR), (Phase.EVAL, Role.GENERATOR)}


def test_scalar_heads_never_make_logits():
    for algorithm in Algorithm:
        for roles in TABLE[algorithm].values():
            assert State.LOGITS not in roles.get(Role.CRITIC, ())
            assert State.LOGITS not in roles.get(Role.REWARD, ())


def test_gradients_live_only_in_update():
    for residency in TABLE.values():
        for phase, roles in residency.items():
            for states in roles.values():
                assert (State.GRADIENTS in states) <= (phase is Phase.UPDATE)


def test_dpo_never_generates():
    assert Phase.GENERATE not in phases_of(Algorithm.DPO)
    assert phases_of(Algorithm.PPO) == (
        Phase.LOAD, Phase.GENERATE, Phase.SCORE, Phase.UPDATE, Phase.SYNC, Phase.SAVE, Phase.EVAL,
    )  # fmt: skip
