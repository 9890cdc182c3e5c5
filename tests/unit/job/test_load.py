"""From a TOML file or a mapping to a Job: defaults with their sources, overrides, variants, speed."""

import json

import pytest
from small_jobs import MODEL, built, mapping

from headcount.errors import InputError
from headcount.job.job import Loss, Origin, RowLayout
from headcount.job.layout import Shard
from headcount.job.load import read_spec, spec_from

DESIGN_SKETCH = """
algorithm = "grpo"
[policy]
model = "Qwen/Qwen2.5-7B-Instruct"   # hub id, folder or config.json
tuning = "full"                      # full | lora | qlora
precision = "fsdp-mixed-16"
[reference]
placement = "offload"                # device | offload | adapter-off | cached (DPO) | none
[[reward]]                           # several, weighted
kind = "math"                        # exact | math | regex | code | model | python:package.module:function
[rollout]
prompts_per_step = 128
group_size = 8
completion_tokens = { mean = 600, max = 2048 }
engine = "vllm"                      # builtin | vllm
[update]
micro_batch_tokens = 16384
clip_low = 0.2
clip_high = 0.28
beta = 0.001
loss_aggregation = "token-mean"
loss_implementation = "chunked"
gradient_checkpointing = "full"
[hardware]
gpu = "h100-sxm"
gpus = 8                             # left out: the fewest that fit
[layout]                             # left out: searched
"""


def written(tmp_path, text=DESIGN_SKETCH):
    file = tmp_path / "job.toml"
    file.write_text(text)
    return file


def test_the_sketch_of_the_design_is_a_job(tmp_path):
    job = read_spec(written(tmp_path)).build()
    assert job.gpus == 8
    assert job.update.tokens <= 16384
    assert job.lengths.completion_mean == 600
    assert job.lengths.row_max == 512 + 2048


def test_overrides_win_and_are_parsed_as_toml(tmp_path):
    overrides = ["layout.tensor=2", "hardware.gpu = h200", "update.gradient_checkpointing=none", "rollout.eager=true"]
    job = read_spec(written(tmp_path), overrides=overrides).build()
    assert job.layouts["train"].tensor == 2
    assert job.gpu.id == "h200-sxm"
    assert job.kernels.checkpointing == "none"
    assert job.engine is not None
    assert job.engine.eager


def test_an_override_replaces_the_other_word_for_the_same_thing(tmp_path):
    job = read_spec(written(tmp_path), overrides=["update.micro_batch_sequences=3"]).build()
    assert job.update.sequences == 3
    assert "update.micro_batch_tokens" not in job.sources


def test_a_config_beside_the_job_file_is_a_model(tmp_path):
    config = {"model_type": "llama", "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4,
              "intermediate_size": 128, "vocab_size": 256, "max_position_embeddings": 2048}  # fmt: skip
    (tmp_path / "tiny").mkdir()
    (tmp_path / "tiny" / "config.json").write_text(json.dumps(config))
    job = read_spec(written(tmp_path), overrides=["policy.model=tiny/config.json", "rollout.completion_tokens=512"])
    assert job.build(gpus=1).policy.shape.hidden == 64


@pytest.mark.parametrize("text", ["layout.tensor", "=2", "layout.tensr=2", "layout.tensor=two"])
def test_a_wrong_override_is_refused(tmp_path, text):
    with pytest.raises(InputError):
        read_spec(written(tmp_path), overrides=[text])


def test_every_setting_says_where_it_came_from(tmp_path):
    sources = read_spec(written(tmp_path)).build().sources
    assert sources["policy.precision"].origin is Origin.GIVEN
    assert sources["policy.optimizer"].origin is Origin.DEFAULT
    assert all(source.text for source in sources.values())
    verl = built("grpo", recipe="verl").sources
    assert verl["update.row_layout"].origin is Origin.RECIPE
    assert "hf_model.yaml" in verl["update.row_layout"].text
    assert verl["layout.shard"].origin is Origin.ASSUMED
    assert verl["layout.shard"].alternatives == ("fsdp2",)


def test_the_default_workload_is_the_printed_one():
    # design.md §1: 10,000 rows, one epoch, prompt 512, completion mean 512 cap 1,024, 128 prompts × 8 a step
    assert spec_from(mapping("grpo")).workload_text() == (
        "10,000 prompts, 1 epoch; prompt 512 tokens (at most 512), completion 512 (at most 1,024); "
        "128 prompts × 8 a step"
    )
    work = built("grpo").work
    assert (work.rows, work.epochs, work.rows_per_step, work.group_size) == (10_000, 1.0, 128, 8)
    assert work.steps == 78


def test_steps_instead_of_epochs():
    assert built("grpo", work={"steps": 25}).work.steps == 25


def test_offline_a_step_is_an_optimizer_step_whichever_key_says_its_rows():
    for section in ({"work": {"rows_per_step": 64}}, {"update": {"mini_batch_prompts": 64}}):
        work = built("sft", **section).work
        assert work.rows_per_step == work.mini_batch_rows == 64


def test_gpus_from_the_file_or_the_call_or_refused():
    spec = spec_from(mapping("sft"))
    assert spec.gpus is None
    assert spec.gpus_per_node == 8
    with pytest.raises(InputError, match="number of GPUs"):
        spec.build()
    assert spec.build(gpus=4).gpus == 4
    assert spec.replaced("hardware.gpus", 2).build().gpus == 2


def test_one_gpu_divides_nothing_and_several_shard():
    assert built("sft", gpus=1).layouts["train"].shard is Shard.NONE
    assert built("sft", gpus=2).layouts["train"].shard is Shard.FSDP2


def test_a_variant_leaves_the_first_job_alone_and_is_checked():
    job = built("sft")
    assert job.replaced("update.loss_implementation", "plain").kernels.loss is Loss.PLAIN
    assert job.kernels.loss is Loss.CHUNKED
    with pytest.raises(InputError, match="did you mean"):
        job.replaced("update.loss_implementation", "plane")


def test_packed_rows_fill_the_token_budget():
    update = built("sft", update={"micro_batch_tokens": 16384, "row_layout": "packed"}).update
    assert (update.sequences, update.row_tokens, update.rows) == (1, 16384, RowLayout.PACKED)


def test_a_token_budget_holds_whole_pairs():
    # rows of 1,536 tokens: five fit into 8,192, four of them are whole pairs
    assert built("dpo", update={"micro_batch_tokens": 8192}).update.sequences == 4


@pytest.mark.parametrize(
    ("model", "gpus", "ranks"),
    [
        (MODEL, 8, 1),  # 15.2 GB of weights in 60 % of 0.6 × 80 GB = 28.8 GB
        ("meta-llama/Llama-3.1-70B-Instruct", 8, 8),  # 141 GB: 4 ranks have 35.3 GB each, 8 have 17.6
        ("meta-llama/Llama-3.1-70B-Instruct", 4, 4),  # four GPUs make no replica of eight
    ],
)
def test_the_engine_takes_the_fewest_ranks_that_leave_room_for_its_cache(model, gpus, ranks):
    engine = built("grpo", gpus=gpus, policy={"model": model}).engine
    assert engine is not None
    assert engine.tensor == ranks


def test_a_recipes_engine_ranks_give_way_where_the_gpus_cannot_make_them():
    job = built("grpo", gpus=3, recipe="verl")
    assert job.engine is not None
    assert job.engine.tensor == 1
    assert job.sources["rollout.engine_tensor"].value == 1


def test_a_recipe_knows_where_the_engine_is_even_when_the_job_does_not_say():
    # OpenRLHF: 0.95 of a card of its own, about half of a shared one
    shared, apart = (
        built("grpo", recipe="openrlhf", rollout=place).engine for place in ({}, {"engine_placement": "separate"})
    )
    assert shared is not None
    assert apart is not None
    assert (shared.memory_fraction, apart.memory_fraction) == (0.5, 0.95)
