"""Errors found in other planners' code, as cases that this one gets right.

Read in the projects' repositories in August 2026; each test names the project and what its formula leaves out.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from headcount.estimate import activations
from headcount.estimate.activations import Pass, kept_per_block
from headcount.estimate.kv_cache import bytes_per_token
from headcount.estimate.model_state import Held, gradients, held, optimizer_state, weights
from headcount.estimate.parameters import block_parameters, largest_tensor, parameters
from headcount.estimate.sharding import fsdp_logits, unsharded
from headcount.facts.models import find_model
from headcount.job.job import Kernels, MicroBatch
from headcount.job.layout import Layout, Shard
from headcount.ledger.derivation import total

EIGHT_B = find_model("meta-llama/Llama-3.1-8B")
RUN = Pass(micro_batch=MicroBatch(sequences=1, row_tokens=4096, logit_tokens=4096), kernels=Kernels())


def test_cookbook_full_checkpointing_is_block_inputs_not_34sbh() -> None:
    # EleutherAI/cookbook: "checkpoint-activations" prints the selective form, 34·s·b·h a layer.
    kept = activations.checkpoints(EIGHT_B, run=RUN).value
    assert kept == 32 * 4096 * 4096 * 2
    assert kept < 32 * 34 * 4096 * 4096 / 10


def test_cookbook_gradients_divide_by_tensor_and_pipeline_before_any_zero_stage() -> None:
    # EleutherAI/cookbook: gradients are not divided by TP·PP below ZeRO-2.
    layout = Layout(gpus=8, tensor=4, pipeline=2)
    shape = find_model("meta-llama/Llama-3.1-70B")
    whole = gradients(held(shape, Layout(gpus=1)), Layout(gpus=1), gradient_bytes=4).value
    here = gradients(held(shape, layout), layout, gradient_bytes=4).value
    # The last stage holds the head and half of the layers; norms stay whole on every tensor rank: within 1 %.
    assert here == pytest.approx(whole / 8, rel=0.01)


def test_cookbook_zero3_divides_by_data_ranks_only() -> None:
    # EleutherAI/cookbook: ZeRO-3 divides by all GPUs after TP·PP has already divided.
    layout = Layout(gpus=64, tensor=4, pipeline=2, shard=Shard.ZERO3)
    assert layout.shard_degree == 8
    numbers = Held(8_000_000)
    assert weights(numbers, layout, weight_bytes=2).value == 2_000_000


def test_cookbook_and_real_kv_counts_keys_and_values_of_key_heads_only() -> None:
    # EleutherAI/cookbook: no factor 2, no GQA, no TP; openpsi-project/ReaLHF: no GQA.
    assert bytes_per_token(EIGHT_B).value == 2 * 32 * 8 * 128 * 2
    assert bytes_per_token(EIGHT_B, tensor=8).value == 2 * 32 * 1 * 128 * 2


def test_accelerate_training_is_the_sum_of_its_parts_not_the_largest() -> None:
    # huggingface/accelerate estimate-memory: 16-bit training is a maximum, 8 bytes a parameter.
    layout, numbers = Layout(gpus=1), Held(10**9)
    state = weights(numbers, layout, weight_bytes=2).value + gradients(numbers, layout, gradient_bytes=2).value
    state += total(optimizer_state(numbers, layout, master_bytes=4, moment_bytes=8))
    assert state == 16e9


def test_real_checkpoints_grow_with_the_layers() -> None:
    # openpsi-project/ReaLHF: checkpointed activations have no factor of layers.
    twice = replace(EIGHT_B, blocks=tuple((2 * count, block) for count, block in EIGHT_B.blocks))
    one, two = (activations.checkpoints(shape, run=RUN).value for shape in (EIGHT_B, twice))
    assert two == 2 * one


def test_deepspeed_gathers_blocks_not_the_largest_module() -> None:
    # deepspeedai/DeepSpeed estimate_zero3_model_states: peak = 4 × the largest *module*.
    block = block_parameters(EIGHT_B.block(0), hidden=EIGHT_B.hidden)
    layout = Layout(gpus=8, shard=Shard.FSDP2)
    assert fsdp_logits(unsharded(EIGHT_B, layout)).value > 2 * (block + largest_tensor(EIGHT_B))


@pytest.mark.parametrize(
    ("model", "copies"),
    [("meta-llama/Llama-3.1-8B", 24.5), ("Qwen/Qwen3-8B", 26.3), ("google/gemma-2b", 44.3)],
)
def test_megatron_blocks_differ_in_heads_gates_and_norms(model: str, copies: float) -> None:
    # NVIDIA/Megatron-LM issue 1784: one form, 34sbh = 17 copies of 2·s·b·h, for all. By hand: norms 8 (Gemma 10),
    # queries to output 2(1 + n_kv/n_q), q/k norms 3(1 + n_kv/n_q), gated MLP 4f/h; small terms within 1 %.
    shape = find_model(model)
    kept = total(kept_per_block(shape.block(0), hidden=shape.hidden, run=RUN))
    assert kept / (2 * 4096 * shape.hidden) == pytest.approx(copies, rel=0.01)


def test_fm_training_estimator_counts_grouped_heads_and_gates() -> None:
    # foundation-model-stack/fm-training-estimator: parameters = l(12h² + 13h) + v·h.
    assert parameters(EIGHT_B) == 8_030_261_248
    theirs = 32 * (12 * 4096**2 + 13 * 4096) + 128256 * 4096
    assert abs(theirs / 8_030_261_248 - 1) > 0.1
