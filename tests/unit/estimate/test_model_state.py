"""Is model state divided by what the layout divides, and is no part lost on the way?"""

from __future__ import annotations

import pytest

from headcount.estimate import model_state
from headcount.estimate.model_state import Held, held
from headcount.estimate.parameters import Kind, adapter_parameters, parameters
from headcount.facts.models import find_model
from headcount.job.layout import Layout, Shard

QWEN = find_model("Qwen/Qwen2.5-7B-Instruct")
MOE = find_model("Qwen/Qwen3-30B-A3B")


def test_one_gpu_holds_every_parameter() -> None:
    for shape in (QWEN, MOE):
        assert held(shape, Layout(gpus=1)).all == parameters(shape)


def test_layer_split_counts_its_largest_stage() -> None:
    stages = held(QWEN, Layout(gpus=2, layer_split=2)).all
    assert parameters(QWEN) / 2 <= stages < parameters(QWEN) * 0.51


def test_a_tied_embedding_sits_on_both_ends_of_a_pipeline() -> None:
    shape = find_model("Qwen/Qwen2.5-0.5B")
    stage = held(shape, Layout(gpus=24, pipeline=24)).all
    assert shape.tied
    assert stage > shape.vocab * shape.hidden


def test_key_heads_are_copied_once_tensor_ranks_outnumber_them() -> None:
    def keys(tensor: int) -> int:
        layout = Layout(gpus=tensor, tensor=tensor)
        return held(QWEN, layout, select=lambda each: each.module == "k_proj").dense

    assert keys(4) == keys(1) // 4
    assert keys(8) > keys(1) // 8


def test_expert_parallelism_divides_experts_and_leaves_the_rest() -> None:
    whole, split = (held(MOE, Layout(gpus=8, expert=expert)) for expert in (1, 8))
    assert split.experts == whole.experts // 8
    assert split.dense == whole.dense


def test_experts_are_sharded_over_the_ranks_that_hold_the_same_ones() -> None:
    layout = Layout(gpus=64, shard=Shard.FSDP2, expert=8)
    got = model_state.weights(Held(64_000, 8_000), layout, weight_bytes=2).value
    assert got == (64_000 / 64 + 8_000 / 8) * 2


def test_hsdp_divides_by_the_ranks_of_one_replica() -> None:
    layout = Layout(gpus=64, shard=Shard.FSDP2, replicate=8)
    assert model_state.gradients(Held(8_000), layout, gradient_bytes=4).value == 4_000


@pytest.mark.parametrize("shard", [Shard.NONE, Shard.DDP])
def test_plain_data_parallelism_shrinks_nothing(shard: Shard) -> None:
    state = model_state.optimizer_state(Held(1000), Layout(gpus=8, shard=shard), master_bytes=4, moment_bytes=8)
    assert {name: term.value for name, term in state.items()} == {"moments": 8000, "master weights": 4000}


def test_only_the_linears_of_a_4_bit_base_are_small() -> None:
    layout = Layout(gpus=1)
    terms = model_state.frozen_weights(QWEN, layout, linear_bytes=0.516, norm_bytes=4)
    linears = held(QWEN, layout, select=lambda tensor: tensor.kind is Kind.LINEAR).dense
    assert terms["linears"].value == linears * 0.516
    assert terms["embedding, head, other"].value >= 2 * QWEN.vocab * QWEN.hidden * 2


def test_adapters_on_one_gpu_are_those_of_the_inventory() -> None:
    for targets in (("q_proj", "v_proj"), ("all-linear",)):
        here = model_state.held_adapters(QWEN, Layout(gpus=1), rank=16, targets=targets)
        assert here.all == adapter_parameters(QWEN, rank=16, targets=targets)


def test_foreach_copies_the_weights_and_fused_nothing() -> None:
    numbers, layout = Held(1000), Layout(gpus=4, shard=Shard.FSDP2)
    assert model_state.step_temporary(numbers, layout, copies=1, state_bytes=4).value == 1000
    assert model_state.step_temporary(numbers, layout, copies=0, state_bytes=4).value == 0


def test_zero_converts_one_sub_group_at_a_time() -> None:
    layout = Layout(gpus=2, shard=Shard.ZERO3)
    assert model_state.sub_group_temporary(Held(8 * 10**9), layout).value == 4e9
    assert model_state.sub_group_temporary(Held(10**6), layout).value == 2e6


def test_the_dequantised_copy_is_the_largest_linear_of_a_block() -> None:
    assert model_state.dequantised_copy(QWEN).value == 2 * 18944 * 3584 * 2
