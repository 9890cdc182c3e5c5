"""Recipes: framework defaults with sources; the figures below are those of the files that the settings name."""

import pytest

from headcount.errors import UnknownFact
from headcount.facts.recipe import find_recipe, recipes, settings_for
from headcount.job.keys import KEYS
from headcount.job.load import spec_from
from headcount.job.schema import mistakes_in

NEEDED = {
    "headcount", "trl", "verl", "openrlhf", "nemo-rl", "deepspeed-chat", "torchtune", "llama-factory", "axolotl",
    "ms-swift", "torchtitan", "megatron",
}  # fmt: skip
GRPO = {"algorithm": "grpo", "tuning": "full", "many": True}


def value(name, key, **facts):
    setting = settings_for(name, {**GRPO, **facts}).get(key)
    return None if setting is None else setting.value


def test_every_framework_that_people_use_is_there():
    assert set(recipes()) >= NEEDED


@pytest.mark.parametrize("name", sorted(recipes()))
def test_every_setting_is_a_key_with_a_sound_value_and_a_source(name):
    recipe = recipes()[name]
    assert recipe.batch, "what its batch sizes count is the first trap of every framework"
    for setting in recipe.settings:
        assert setting.key in KEYS
        for value_ in (setting.value, *setting.alternatives):
            assert not mistakes_in({setting.key: value_}, where=name)
        assert setting.source.partition(": ")[2]
        assert setting.value not in setting.alternatives


@pytest.mark.parametrize("name", sorted(recipes()))
@pytest.mark.parametrize("algorithm", ["ppo", "grpo", "dpo", "reward-model", "sft"])
@pytest.mark.parametrize("tuning", ["full", "lora", "qlora"])
@pytest.mark.parametrize("gpus", [1, 8])
def test_every_recipe_builds_every_kind_of_job(name, algorithm, tuning, gpus):
    policy = {"model": "Qwen/Qwen2.5-7B-Instruct", "tuning": tuning}
    spec = spec_from({"algorithm": algorithm, "recipe": name, "policy": policy, "hardware": {"gpu": "h100-sxm"}})
    assert spec.build(gpus=gpus).recipe == name


def test_an_assumed_setting_can_be_planned_with_its_other_values():
    base = {"algorithm": "sft", "policy": {"model": "Qwen/Qwen2.5-7B-Instruct"}, "hardware": {"gpu": "h100-sxm"}}
    job = spec_from({**base, "recipe": "hf-trainer"}).build(gpus=8)
    assumed = job.sources["policy.precision"]
    assert assumed.alternatives == ("bf16-pure-8",)
    assert job.replaced("policy.precision", "bf16-pure-8").policy.precision.name == "bf16-pure-8"


@pytest.mark.parametrize(
    ("version", "beta", "checkpointing", "fraction"),
    [
        ("trl", 0.0, "full", 0.3),
        ("trl@1.10", 0.0, "full", 0.3),
        ("trl@0.21", 0.0, "none", 0.3),
        ("trl@0.15", 0.04, "none", 0.9),
        ("trl@0.12.2", 0.04, "none", 0.3),
    ],
)
def test_trl_changed_its_defaults(version, beta, checkpointing, fraction):
    # beta 0.04 → 0.0, checkpointing off → on at about 0.24, vLLM fraction 0.9 in 0.14 to 0.16
    assert value(version, "update.beta") == beta
    assert value(version, "update.gradient_checkpointing") == checkpointing
    assert value(version, "rollout.memory_fraction") == fraction


def test_verl_padded_before_0_6():
    assert value("verl", "update.row_layout") == "packed"
    assert value("verl@0.5", "update.row_layout") == "padded"
    assert value("verl@0.5.1", "rollout.max_sequences") == 1024


def test_a_child_inherits_its_parents_newest():
    assert value("skyrl@0.3", "update.row_layout") == "packed"


def test_ms_swift_loads_a_reference_where_trl_does_not():
    # arguments/rlhf_args.py:355: beta unset is 0.04
    assert value("ms-swift", "update.beta") == 0.04
    assert value("trl", "update.beta") == 0.0


def test_torchtune_keeps_no_master_weights():
    assert value("torchtune", "policy.precision") == "bf16-pure-8"


def test_settings_depend_on_the_sharding():
    assert value("hf-trainer", "policy.precision", shard="zero-3") == "zero-16"
    assert value("hf-trainer", "policy.precision", shard="fsdp1") == "fsdp-mixed-16"


@pytest.mark.parametrize("name", ["tlr", "trl@", "trl@new", "trl@1.0@2", "", "trl@" + "9" * 200])
def test_an_unknown_recipe_or_version_is_refused(name):
    with pytest.raises(UnknownFact):
        find_recipe(name)


def test_the_nearest_recipe_is_named():
    with pytest.raises(UnknownFact, match="did you mean openrlhf"):
        find_recipe("open-rlhf")


def test_a_condition_reads_as_words():
    old = next(s for s in find_recipe("trl@0.15").settings if s.key == "rollout.memory_fraction" and s.before)
    assert old.condition == "from 0.14, before 0.17"
