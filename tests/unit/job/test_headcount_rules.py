"""design.md §2: which networks a job really needs, and what removes or adds one."""

import pytest
from small_jobs import built

from headcount.job.job import EnginePlacement, Placement, Tuning
from headcount.vocabulary import Role

LORA = {"tuning": "lora"}
MODEL_REWARD = [{"kind": "model"}]


def roles(job):
    return set(job.networks)


def test_ppo_has_four_networks_two_of_them_trained():
    job = built("ppo")
    assert roles(job) == {Role.POLICY, Role.CRITIC, Role.REFERENCE, Role.REWARD}
    assert {role for role, network in job.networks.items() if network.trainable} == {Role.POLICY, Role.CRITIC}


def test_ppo_without_kl_has_no_reference():
    assert Role.REFERENCE not in built("ppo", update={"kl_coef": 0.0}).networks


def test_ppo_with_a_reward_function_has_no_reward_network_and_a_critic_of_the_policys_shape():
    job = built("ppo", reward=[{"kind": "math"}])
    assert Role.REWARD not in job.networks
    assert job.networks[Role.CRITIC].shape is job.policy.shape


def test_instructgpt_sizes_critic_follows_the_reward_model():
    job = built("ppo", reward=[{"kind": "model", "model": "Qwen/Qwen2.5-0.5B-Instruct"}])
    assert job.networks[Role.CRITIC].shape.name == job.networks[Role.REWARD].shape.name == "Qwen/Qwen2.5-0.5B-Instruct"
    assert job.networks[Role.REFERENCE].shape is job.policy.shape


def test_critic_may_start_from_the_policy_instead():
    job = built(
        "ppo", critic={"init_from": "policy"}, reward=[{"kind": "model", "model": "Qwen/Qwen2.5-0.5B-Instruct"}]
    )
    assert job.networks[Role.CRITIC].shape is job.policy.shape


def test_critic_on_the_policys_trunk_owns_an_adapter_and_no_weights():
    critic = built("ppo", policy=LORA, critic={"trunk": "policy"}).networks[Role.CRITIC]
    assert critic.weights_of is Role.POLICY
    assert critic.tuning is Tuning.LORA
    assert critic.adapter is not None
    assert critic.scalar_head


def test_critic_on_the_rewards_trunk_has_the_rewards_frozen_format():
    reward = [{"kind": "model", "base_precision": "fp8"}]
    critic = built("ppo", policy=LORA, critic={"trunk": "reward"}, reward=reward).networks[Role.CRITIC]
    assert critic.weights_of is Role.REWARD
    assert critic.frozen.name == "fp8"


@pytest.mark.parametrize("algorithm", ["ppo", "dpo"])
def test_a_lora_policy_is_its_own_reference_with_the_adapter_off(algorithm):
    reference = built(algorithm, policy=LORA).networks[Role.REFERENCE]
    assert reference.placement is Placement.ADAPTER_OFF
    assert reference.weights_of is Role.POLICY


def test_a_lora_policy_with_another_reference_model_keeps_both():
    reference = built("dpo", policy=LORA, reference={"model": "Qwen/Qwen2.5-0.5B-Instruct"}).networks[Role.REFERENCE]
    assert reference.placement is Placement.DEVICE
    assert reference.weights_of is None


def test_grpo_without_beta_is_the_policy_alone():
    assert roles(built("grpo", reward=[{"kind": "math"}])) == {Role.POLICY}
    assert roles(built("grpo", reward=[{"kind": "math"}], update={"beta": 0.0})) == {Role.POLICY}


@pytest.mark.parametrize("pull", [{"beta": 0.04}, {"kl_coef": 0.05}])
def test_grpo_with_a_kl_term_in_loss_or_reward_keeps_a_reference(pull):
    assert roles(built("grpo", update=pull)) == {Role.POLICY, Role.REFERENCE}


@pytest.mark.parametrize(
    "kind", ["exact", "math", "regex", "code", "length", "format", "json", "python:mine.rewards:f"]
)
def test_only_a_model_reward_is_a_network(kind):
    assert Role.REWARD not in built("grpo", reward=[{"kind": kind}]).networks
    assert Role.REWARD in built("grpo", reward=[{"kind": kind}, {"kind": "model"}]).networks


def test_an_offloaded_reference_is_on_the_host():
    job = built("grpo", update={"beta": 0.04}, reference={"placement": "offload"})
    assert job.networks[Role.REFERENCE].placement is Placement.OFFLOAD


def test_dpo_keeps_a_reference_or_its_cached_logprobs():
    assert built("dpo").networks[Role.REFERENCE].placement is Placement.DEVICE
    cached = built("dpo", reference={"placement": "cached"}).networks[Role.REFERENCE]
    assert cached.placement is Placement.CACHED


def test_reward_model_training_is_one_network_with_a_scalar_head():
    job = built("reward-model")
    assert roles(job) == {Role.REWARD}
    assert job.policy.scalar_head
    assert job.update.sequences % 2 == 0


def test_sft_is_the_policy_alone():
    assert roles(built("sft")) == {Role.POLICY}


@pytest.mark.parametrize("algorithm", ["dpo", "reward-model", "sft"])
def test_offline_runs_have_no_generator(algorithm):
    assert built(algorithm).engine is None


def test_the_generator_is_a_copy_of_its_own_unless_it_is_built_in():
    vllm = built("grpo").engine
    assert vllm is not None
    assert vllm.placement is EnginePlacement.COLOCATED
    for name in ("builtin", "hf"):
        engine = built("grpo", rollout={"engine": name}).engine
        assert engine is not None
        assert engine.placement is EnginePlacement.SHARED


def test_a_separate_engine_adds_its_gpus_and_never_sleeps():
    job = built("grpo", gpus=4, rollout={"engine_placement": "separate", "engine_gpus": 2})
    assert job.gpus == 6
    assert job.engine is not None
    assert job.engine.sleep_level == 0
    assert job.layouts[job.engine.group].gpus == 2


def test_a_role_on_gpus_of_its_own():
    layout = {"roles": {"critic": "values"}, "groups": {"values": {"gpus": 4, "shard": "zero-3"}}}
    job = built("ppo", layout=layout)
    assert job.networks[Role.CRITIC].group == "values"
    assert job.layouts["values"].gpus == 4
    assert job.gpus == 12
