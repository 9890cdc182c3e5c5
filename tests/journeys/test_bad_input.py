"""Wrong job files: one message with every mistake, where it is, why, and what to paste; no traceback, no guess."""

import os

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headcount.errors import InputError
from headcount.job.keys import KEYS
from headcount.job.load import read_spec, spec_from

DENSE, MOE = "Qwen/Qwen2.5-7B-Instruct", "Qwen/Qwen3-30B-A3B"


def refused(algorithm="grpo", *, model=DENSE, gpus=8, policy=(), **sections):
    """The message of a job that must not be built."""
    mapping = {
        "algorithm": algorithm,
        "policy": {"model": model, **dict(policy)},
        "hardware": {"gpu": "h100-sxm", "gpus": gpus},
    }
    for name, section in sections.items():
        mapping[name] = {**mapping[name], **section} if name == "hardware" else section
    with pytest.raises(InputError) as caught:
        spec_from(mapping, where="job.toml").build()
    for mistake in caught.value.mistakes:
        assert mistake.where
        assert mistake.what
    return str(caught.value)


# One mistake each: the job, the key that must be named, a word of the reason, the fix.
WRONG = {
    "unknown key": (
        {"update": {"micro_batch_token": 8192}},
        "update.micro_batch_token:",
        "did you mean micro_batch_tokens",
        "micro_batch_tokens = 8192",
    ),
    "key in the wrong section": (
        {"rollout": {"micro_batch_tokens": 8192}},
        "rollout.micro_batch_tokens:",
        "did you mean update.micro_batch_tokens",
        "update.micro_batch_tokens = 8192",
    ),
    "unknown section": (
        {"rolout": {"group_size": 8}},
        "rolout.group_size",
        "rollout.group_size",
        "rollout.group_size = 8",
    ),
    "unit in a number": (
        {"hardware": {"host_memory_gib": "80GB"}},
        "hardware.host_memory_gib",
        "not a number (a plain number, without a unit)",
        "host_memory_gib = 80",
    ),
    "16k": (
        {"update": {"micro_batch_tokens": "16k"}},
        "update.micro_batch_tokens",
        "16k",
        "micro_batch_tokens = 16384",
    ),
    "bool for a number": ({"layout": {"tensor": True}}, "layout.tensor", "not a number", "tensor = 1"),
    "fraction of a GPU": ({"hardware": {"gpus": 1.5}}, "hardware.gpus", "whole number", "gpus = 2"),
    "no GPU": ({"hardware": {"gpus": 0}}, "hardware.gpus", "outside 1", "gpus = 1"),
    "negative": ({"work": {"rows": -5}}, "work.rows", "outside 1", "rows = 1"),
    "absurd": ({"work": {"rows": 10**30}}, "work.rows", "outside", "rows = 1000000000000"),
    "not a number": (
        {"update": {"learning_rate": float("nan")}},
        "update.learning_rate",
        "finite",
        "learning_rate = 0",
    ),
    "word for a bool": ({"rollout": {"eager": "yes"}}, "rollout.eager", "true or false", "eager = true"),
    "not a choice": (
        {"update": {"attention": "flsh"}},
        "update.attention",
        "did you mean flash",
        'attention = "flash"',
    ),
    "memory fraction": ({"rollout": {"memory_fraction": 1.2}}, "rollout.memory_fraction", "1", "memory_fraction = 1"),
    "mean above max": (
        {"rollout": {"completion_tokens": {"mean": 9, "max": 5}}},
        "rollout.completion_tokens",
        "above",
        "mean = ",
    ),
    "value for a section": ({"layout": 2}, "layout", "not a table", "[layout]"),
    "reward that is one table": ({"reward": {"kind": "math"}}, "reward", "list of tables", "[[reward]]"),
    "unknown reward": ({"reward": [{"kind": "judge"}]}, "reward[0].kind", "none of", 'kind = "math"'),
    "tensor and heads": ({"layout": {"tensor": 8}}, "layout.tensor", "28 heads", "tensor = 4"),
    "more stages than layers": (
        {"gpus": 29, "layout": {"pipeline": 29}},
        "layout.pipeline",
        "28 layers",
        "pipeline = 28",
    ),
    "GPUs no multiple": (
        {"layout": {"tensor": 2, "pipeline": 3}},
        "layout",
        "multiple of tensor 2",
        "hardware.gpus = 12",
    ),
    "experts of a dense model": ({"layout": {"expert": 2}}, "layout.expert", "no experts", "expert = 1"),
    "experts not divided": (
        {"model": MOE, "gpus": 24, "layout": {"expert": 24}},
        "layout.expert",
        "128 experts",
        "expert = 16",
    ),
    "group of one": ({"rollout": {"group_size": 1}}, "rollout.group_size", "no siblings", "group_size = 8"),
    "longer than the context": (
        {"rollout": {"completion_tokens": 40_000}},
        "lengths",
        "40,512 tokens",
        "completion_tokens.max",
    ),
    "pipeline under ZeRO-2": (
        {"layout": {"shard": "zero-2", "pipeline": 2}},
        "layout.shard",
        "a pipeline cannot",
        'shard = "zero-1"',
    ),
    "pipeline under ZeRO-3": (
        {"layout": {"shard": "zero-3", "pipeline": 2}},
        "layout.shard",
        "a pipeline cannot",
        'shard = "zero-1"',
    ),
    "replicas of nothing": (
        {"layout": {"shard": "ddp", "replicate": 2}},
        "layout.replicate",
        "needs a sharding",
        "= 1",
    ),
    "cached log-probs online": (
        {"reference": {"placement": "cached"}},
        "reference.placement",
        "only DPO",
        'placement = "offload"',
    ),
    "adapter off without an adapter": (
        {"algorithm": "dpo", "reference": {"placement": "adapter-off"}},
        "reference.placement",
        "no adapter",
        'placement = "device"',
    ),
    "half a pair": ({"algorithm": "dpo", "update": {"micro_batch_sequences": 3}}, "update", "whole pairs", "= 4"),
    "mini-batch above the step": (
        {"update": {"mini_batch_prompts": 256}},
        "update.mini_batch_prompts",
        "128 of one step",
        "mini_batch_prompts = 128",
    ),
    "engine over odd GPUs": (
        {"rollout": {"engine_tensor": 7}},
        "rollout.engine_tensor",
        "whole replicas",
        "engine_tensor = 1",
    ),
    "built-in engine apart": (
        {"rollout": {"engine": "builtin", "engine_placement": "separate"}},
        "rollout.engine_placement",
        "the policy's own weights",
        'engine_placement = "shared"',
    ),
    "vLLM without a copy": (
        {"rollout": {"engine": "vllm", "engine_placement": "shared"}},
        "rollout.engine_placement",
        "its own copy",
        'engine_placement = "colocated"',
    ),
    "QLoRA on 16 bits": (
        {"policy": {"tuning": "qlora", "base_precision": "bf16"}},
        "policy.base_precision",
        "not a quantised format",
        'base_precision = "nf4"',
    ),
    "critic from a reward that is a function": (
        {"algorithm": "ppo", "reward": [{"kind": "math"}], "critic": {"init_from": "reward"}},
        "critic.init_from",
        "no reward network",
        'critic.init_from = "policy"',
    ),
    "two reward networks": ({"reward": [{"kind": "model"}] * 2}, "reward", "2 reward networks", "keep one"),
    "role on no group": (
        {"algorithm": "ppo", "layout": {"roles": {"critic": "values"}}},
        "layout.roles",
        "no group",
        "[layout.groups.values]",
    ),
    "group without GPUs": (
        {"algorithm": "ppo", "layout": {"roles": {"critic": "v"}, "groups": {"v": {"shard": "ddp"}}}},
        "layout.groups.v",
        "needs gpus",
        "gpus = 8",
    ),
    "unknown model": ({"model": "Qwen/Qwen2.5-7B-Instrct"}, "policy.model", "Qwen/Qwen2.5-7B-Instruct", "fix"),
    "unknown GPU": ({"hardware": {"gpu": "h300"}}, "hardware.gpu", "h300", "headcount facts gpus"),
    "unknown precision": ({"policy": {"precision": "bf8"}}, "policy.precision", "not a known format", "one of"),
    "unknown optimizer": ({"policy": {"optimizer": "adamv"}}, "policy.optimizer", "adamv", "one of"),
    "unknown recipe": ({"recipe": "tlr"}, "recipe", "did you mean trl", "one of"),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_mistake_is_named_with_its_reason_and_a_fix(name):
    job, key, reason, fix = WRONG[name]
    message = refused(**job)
    assert f"job.toml: {key}" in message
    assert reason in message
    assert fix in message


USELESS = {
    "DPO with a rollout": ("dpo", {"rollout": {"engine": "vllm"}}, "rollout.engine"),
    "DPO with a reward": ("dpo", {"reward": [{"kind": "model"}]}, "reward"),
    "clipping in SFT": ("sft", {"update": {"clip_low": 0.2}}, "update.clip_low"),
    "critic in GRPO": ("grpo", {"critic": {"tuning": "lora"}}, "critic.tuning"),
    "reference in SFT": ("sft", {"reference": {"placement": "offload"}}, "reference.placement"),
    "beta in PPO": ("ppo", {"update": {"beta": 0.1}}, "update.beta"),
    "KL coefficient in DPO": ("dpo", {"update": {"kl_coef": 0.1}}, "update.kl_coef"),
    "logits of a reward model": (
        "reward-model",
        {"update": {"loss_implementation": "plain"}},
        "update.loss_implementation",
    ),
    "score pass in SFT": ("sft", {"score": {"micro_batch_sequences": 4}}, "score.micro_batch_sequences"),
    "pairs in SFT": ("sft", {"data": {"pairs": "pairs.jsonl"}}, "data.pairs"),
    "sleep of the built-in engine": (
        "grpo",
        {"rollout": {"engine": "builtin", "sleep_level": 2}},
        "rollout.sleep_level",
    ),
    "graphs of HF generate": ("grpo", {"rollout": {"engine": "hf", "eager": True}}, "rollout.eager"),
    "engine GPUs when colocated": ("grpo", {"rollout": {"engine_gpus": 4}}, "rollout.engine_gpus"),
    "adapter of full tuning": ("sft", {"policy": {"adapter": {"rank": 8}}}, "policy.adapter.rank"),
    "frozen base of full tuning": ("sft", {"policy": {"base_precision": "nf4"}}, "policy.base_precision"),
    "weights of a shared trunk": (
        "ppo",
        {"policy": {"tuning": "lora"}, "critic": {"trunk": "policy", "model": DENSE}},
        "critic.model",
    ),
    "reference without KL": (
        "grpo",
        {"update": {"beta": 0.0}, "reference": {"placement": "offload"}},
        "reference.placement",
    ),
    "format of an adapter-off reference": (
        "dpo",
        {"policy": {"tuning": "lora"}, "reference": {"base_precision": "fp8"}},
        "reference.base_precision",
    ),
    "chunks of a plain loss": (
        "sft",
        {"update": {"loss_implementation": "plain", "loss_chunk_tokens": 512}},
        "update.loss_chunk_tokens",
    ),
    "reentrant without checkpointing": (
        "sft",
        {"update": {"gradient_checkpointing": "none", "checkpoint_reentrant": True}},
        "update.checkpoint_reentrant",
    ),
    "root group of DDP": ("sft", {"layout": {"shard": "ddp", "root_split": True}}, "layout.root_split"),
    "exchange without context ranks": ("sft", {"layout": {"context_exchange": "ulysses"}}, "layout.context_exchange"),
    "interleaving without stages": ("sft", {"layout": {"virtual_pipeline": 2}}, "layout.virtual_pipeline"),
    "sequence parallel without tensor": ("sft", {"layout": {"sequence_parallel": True}}, "layout.sequence_parallel"),
    "steps and epochs": ("sft", {"work": {"steps": 5, "epochs": 2}}, "work.epochs"),
    "tokens and sequences": (
        "sft",
        {"update": {"micro_batch_tokens": 8192, "micro_batch_sequences": 4}},
        "update.micro_batch_tokens",
    ),
    "a reward function's model": ("grpo", {"reward": [{"kind": "math", "model": DENSE}]}, "reward[0].model"),
    "a group that nobody uses": ("ppo", {"layout": {"groups": {"idle": {"gpus": 4}}}}, "layout.groups.idle"),
}


@pytest.mark.parametrize("name", USELESS)
def test_an_option_without_effect_is_refused(name):
    algorithm, sections, key = USELESS[name]
    message = refused(algorithm, **sections)
    assert f"job.toml: {key}: no effect" in message


def test_all_mistakes_come_at_once():
    message = refused(
        policy={"tuning": "lorra", "adapter": {"rank": 8}, "precision": "bf8"},
        update={"micro_batch_tokens": "16k", "passes": 0},
        hardware={"gpu": "h300"},
        reward=[{"kind": "model", "model": "nobody/nothing"}],
    )
    for key in (
        "policy.tuning",
        "policy.precision",
        "update.micro_batch_tokens",
        "update.passes",
        "hardware.gpu",
        "reward[0].model",
    ):
        assert f"job.toml: {key}" in message
    assert "policy.adapter.rank" not in message  # it hangs on the misspelt tuning, and may be right


def test_wrong_types_and_impossible_relations_come_together():
    message = refused(update={"passes": 0}, layout={"tensor": 3}, rollout={"group_size": 1})
    for key in ("update.passes", "layout.tensor", "rollout.group_size"):
        assert f"job.toml: {key}" in message


def test_what_is_missing_is_named_with_a_line_to_paste():
    with pytest.raises(InputError) as caught:
        spec_from({}, where="job.toml")
    message = str(caught.value)
    for line in ('algorithm = "grpo"', 'model = "Qwen/Qwen2.5-7B-Instruct"', 'gpu = "h100-sxm"'):
        assert line in message


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "is missing"),
        (b"algorithm = ", "not TOML"),
        (b'algorithm = "grpo"\n[policy\nmodel', "not TOML"),
        (b'{"algorithm": "grpo"}', "not TOML"),
        (b"\x00\x01\x02\xff\xfe" * 100, "not UTF-8"),
        (b"\x00" * 100, "not TOML"),
        (b"# x\n" * (2 << 20), "at most 5,242,880"),
        (b"a = " + b"[" * 200_000, "nested too deeply|not TOML"),
        (b".".join([b"a"] * 100_000) + b" = 1", "nested too deeply|no such key|not TOML"),
        (b"gpus = " + b"9" * 10_000, "not a job file|not TOML"),
        (b'algorithm = "grpo"\nalgorithm = "sft"', "not TOML"),
    ],
)
def test_a_file_that_is_no_job_file(tmp_path, content, says):
    file = tmp_path / "job.toml"
    file.write_bytes(content)
    with pytest.raises(InputError, match=says) as caught:
        read_spec(file)
    assert "job.toml" in str(caught.value)


def test_a_missing_file_a_folder_and_a_pipe(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    for name, says in (("none.toml", "no such file"), (".", "is a folder"), ("pipe", "not a regular file")):
        with pytest.raises(InputError, match=says):
            read_spec(tmp_path / name)


def test_thousands_of_wrong_keys_are_cut_short():
    message = refused(update={f"key_{i}" * 20: i for i in range(20_000)})
    assert len(message) < 20_000
    assert "the rest is not listed" in message


_SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20)
_VALUES = st.recursive(
    _SCALARS | st.sampled_from(["16k", "80GB", "lora", "none", 1, 2, 7]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=5,
)
# A model's name goes to the hub where it is reachable: names are tried above, one by one.
_OTHER_KEYS = [key for key in (*KEYS, "reward", "layout.roles", "layout.groups") if not key.endswith(".model")]


def message_of(changes):
    """Empty when the changed job can be built."""
    spec = spec_from({"algorithm": "ppo", "policy": {"model": DENSE}, "hardware": {"gpu": "h100-sxm", "gpus": 8}})
    try:
        for key, value in changes.items():
            spec = spec.replaced(key, value)
        spec.build()
    except InputError as error:
        return str(error)
    return ""


@settings(max_examples=200, deadline=None)
@given(changes=st.dictionaries(st.sampled_from(_OTHER_KEYS), _VALUES, max_size=4))
def test_any_value_of_any_key_is_a_job_or_a_message(changes):
    assert len(message_of(changes)) < 5_000
