"""Layouts, other networks, engines and batches as rows state them."""

import pytest

from headcount.measure.mapping.batch import batch_of
from headcount.measure.mapping.evidence import cases_of
from headcount.measure.mapping.machines import gpu_of
from headcount.measure.mapping.parallel import spread_of
from headcount.measure.mapping.roles import engine_of, others_of


def _case(**fields):
    (case,) = cases_of({"id": "x"} | fields)
    return case


@pytest.mark.parametrize(
    ("parallelism", "recipe", "gpus", "layout"),
    [
        ({"zero_stage": 3}, "trl", 8, {"shard": "zero-3"}),
        ({"fsdp": "FULL_SHARD"}, "hf-trainer", 2, {"shard": "fsdp1"}),
        ({"fsdp": "FSDP2 full shard", "tp": 8}, "torchtitan", 256,
         {"shard": "fsdp2", "tensor": 8, "sequence_parallel": True}),
        ({"dp": 4}, "trl", 4, {"shard": "ddp"}),
        ({"dp": 1}, "trl", 1, {"shard": "none"}),
        ({"tp": 4, "sp": True}, "ms-swift-megatron", 4, {"shard": "zero-1", "tensor": 4, "sequence_parallel": True}),
        ({"layers_split": "HF device_map across GPUs (naive pipeline)"}, "ms-swift", 2,
         {"shard": "none", "layer_split": 2}),
        ({"zero_stage": 2, "offload": "optimizer CPU"}, "openrlhf", 4, {"shard": "zero-2", "offload_optimizer": True}),
        ({"fsdp": "FSDP full shard", "sp": 2, "offload": "params+optimizer CPU between phases"}, "verl", 2,
         {"shard": "fsdp1", "context": 2, "context_exchange": "ulysses", "offload_between_phases": True}),
    ],
)  # fmt: skip
def test_layout(parallelism, recipe, gpus, layout):
    assert dict(spread_of(_case(parallelism=parallelism), recipe=recipe, gpus=gpus).layout) == layout


def test_other_models_in_words():
    others = others_of(_case(other_models="reference full copy, param offload; no critic; rule reward"))
    assert others is not None
    assert {other.role: other.placement for other in others} == {
        "reference": "offload",
        "critic": "none",
        "reward": "none",
    }


def test_one_clause_may_name_two_roles_and_their_model():
    others = others_of(
        _case(other_models="reward and critic OPT-350M; reference = actor size (offloaded for the larger ones)")
    )
    assert others is not None
    assert {other.role: other.model for other in others} == {
        "reward": "facebook/opt-350m", "critic": "facebook/opt-350m", "reference": None,
    }  # fmt: skip


def test_other_models_as_a_list():
    listed = [{"role": "reference", "model": "same as policy", "tuning": "frozen", "placement": "32 GPUs of its own"},
              {"role": "reward", "model": "by API", "tuning": "none", "placement": "elsewhere"}]  # fmt: skip
    others = others_of(_case(other_models=listed))
    assert others is not None
    assert [(other.role, other.placement, other.model) for other in others] == [
        ("reference", "elsewhere", None), ("reward", "elsewhere", None),
    ]  # fmt: skip


def test_an_engine_in_words():
    engine = engine_of(_case(engine="vllm 0.8.3 colocated, TP2, gpu_memory_utilization 0.25, max_num_seqs 512"))
    assert engine is not None
    assert (engine.name, engine.placement, engine.tensor) == ("vllm", "colocated", 2)
    assert (engine.memory_fraction, engine.max_sequences) == (0.25, 512)


def test_an_engine_on_gpus_of_its_own():
    engine = engine_of(_case(engine="vllm on 4 GPUs, trainer on 12, one step off"))
    assert engine is not None
    assert (engine.placement, engine.gpus) == ("separate", 4)


def test_generation_in_place_shares_the_weights():
    engine = engine_of(_case(engine={"name": "hf generate", "placement": "none", "in_place": True, "gather": True}))
    assert engine is not None
    assert (engine.placement, engine.gathers_whole_model) == ("shared", True)


def test_real_lengths_are_read_from_prose():
    notes = "GSM8K: real prompts ~100 and answers ~250-300 tokens, so with padding removed …"
    fields = {"micro_batch_per_gpu": 100, "prompt_len": 512, "completion_len": 1024, "packing": "remove_padding"}
    batch = batch_of(_case(algorithm="grpo", batch=fields, notes=notes))
    assert (batch.row_layout, batch.typical) == ("packed", (100, 275))


def test_a_sequence_parallel_group_shares_a_micro_batch_counted_per_gpu():
    fields = {"micro_batch_per_gpu": 58, "micro_batch_unit": "completions", "prompt_len": 512, "completion_len": 1024}
    assert batch_of(_case(batch=fields), context_ranks_share=2).sequences == 116


@pytest.mark.parametrize(
    ("label", "gpu"),
    [("A100-80GB", "a100-sxm4-80gb"), ("B200 (power limited)", "b200-sxm"), ("H100-96GB-HBM2e", "h100-sxm5-96gb-hbm2e"),
     ("80GB class", "a100-sxm4-80gb"), ("24GB GPU", "a10g")],
)  # fmt: skip
def test_gpu_labels(label, gpu):
    machine = gpu_of(label)
    assert machine is not None
    assert machine.gpu == gpu


def test_no_gpu_of_that_size():
    assert gpu_of("RTX-4070-Laptop-8GB") is None
