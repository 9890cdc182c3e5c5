"""Do the counts follow from the shapes by hand, and do active, largest and adapter counts mean what they say?"""

from __future__ import annotations

import pytest

from headcount.estimate.parameters import (
    Kind,
    active_parameters,
    adapter_parameters,
    block_parameters,
    block_tensors,
    largest_tensor,
    parameters,
    root_parameters,
)
from headcount.facts.model_shape import Attention, Block, DenseMlp, ModelShape, MoeMlp
from headcount.facts.models import find_model


def _shape(*, tied: bool = False, mlp: DenseMlp | MoeMlp | None = None) -> ModelShape:
    block = Block(attention=Attention(heads=4, kv_heads=2, head_dim=8), mlp=mlp or DenseMlp(width=20))
    return ModelShape(name="t", family="llama", hidden=10, blocks=((3, block),), vocab=7, max_tokens=9, tied=tied)


def test_a_block_by_hand():
    # q 10·32, k and v 10·16 each, o 32·10; gate, up, down 10·20 each; two norms of 10
    assert block_parameters(_shape().block(0), hidden=10) == 320 + 160 + 160 + 320 + 3 * 200 + 20


def test_root_by_hand_and_tied_embeddings_count_once():
    assert root_parameters(_shape()) == 70 + 70 + 10
    assert root_parameters(_shape(tied=True)) == 70 + 10
    assert parameters(_shape()) - parameters(_shape(tied=True)) == 70


def test_scalar_head_replaces_the_vocabulary_head():
    assert root_parameters(_shape(), scalar_head=True) == 70 + 10 + 10
    assert root_parameters(_shape(tied=True), scalar_head=True) == 70 + 10 + 10


def test_total_is_root_and_blocks():
    shape = find_model("deepseek-ai/DeepSeek-V3")
    blocks = sum(block_parameters(shape.block(layer), hidden=shape.hidden) for layer in range(shape.layers))
    assert parameters(shape) == root_parameters(shape) + blocks


@pytest.mark.parametrize(
    ("model", "printed_b"),
    [
        ("mistralai/Mixtral-8x7B-v0.1", 12.9),  # arXiv:2401.04088: "13B active"; 12.9B in the announcement
        ("deepseek-ai/DeepSeek-V3", 37.0),  # arXiv:2412.19437: 37B
        ("Qwen/Qwen3-30B-A3B", 3.3),  # model card: 3.3B
        ("Qwen/Qwen3-235B-A22B", 22.0),  # model card: 22B
        ("deepseek-ai/DeepSeek-V2", 21.0),  # arXiv:2405.04434: 21B
        ("Qwen/Qwen2-57B-A14B", 14.2),  # arXiv:2407.10671: 14B
        ("Qwen/Qwen3-Coder-480B-A35B-Instruct", 35.0),  # model card: 35B
        ("moonshotai/Kimi-K2-Instruct", 32.5),  # model card: 32B
        ("meta-llama/Llama-4-Scout-17B-16E", 17.0),  # model card: 17B
        ("openai/gpt-oss-120b", 5.1),  # model card: 5.1B
        ("openai/gpt-oss-20b", 3.6),  # model card: 3.6B
    ],
)
def test_active_parameters_are_those_that_the_papers_print(model, printed_b):
    """They count the input embedding, which is looked up and not multiplied with (gpt-oss does not)."""
    shape = find_model(model)
    embedding = 0 if model.startswith("openai") else shape.vocab * shape.hidden
    printed = printed_b * 1e9
    assert active_parameters(shape) + embedding == pytest.approx(printed, rel=0.025)  # printed to two or three digits


def test_dense_model_is_active_but_for_the_looked_up_embedding():
    untied, tied = find_model("Qwen/Qwen2.5-7B"), find_model("Qwen/Qwen2.5-0.5B")
    assert parameters(untied) - active_parameters(untied) == 152_064 * 3_584
    assert active_parameters(tied) == parameters(tied)


def test_tied_scalar_model_does_not_multiply_with_its_embedding():
    shape = _shape(tied=True)
    assert parameters(shape, scalar_head=True) - active_parameters(shape, scalar_head=True) == 70


def test_active_experts_are_counted_in_proportion():
    moe = _shape(mlp=MoeMlp(experts=8, active=2, width=6))
    one_expert = 3 * 10 * 6
    assert parameters(moe) - active_parameters(moe) == 3 * 6 * one_expert + 70


def test_largest_tensor_is_the_embedding_or_the_stacked_experts():
    assert largest_tensor(find_model("Qwen/Qwen2.5-7B")) == 152_064 * 3_584
    # transformers 5 keeps gate and up of all eight experts of a block in one parameter
    assert largest_tensor(find_model("mistralai/Mixtral-8x7B-v0.1")) == 8 * 2 * 14_336 * 4_096


@pytest.mark.parametrize(
    ("model", "targets", "printed"),
    [
        # r = 8 on q, v of Llama-2-7B: "trainable params: 4,194,304", the figure that peft's print_trainable_parameters
        # shows in many tutorials: 32 × 2 × 8 × (4096 + 4096)
        ("meta-llama/Llama-2-7b-hf", ("q_proj", "v_proj"), 4_194_304),
        # r = 8, all seven linears: 32 × 8 × (4·8192 + 3·15104)
        ("meta-llama/Llama-2-7b-hf", ("all-linear",), 19_988_480),
    ],
)
def test_adapters_of_rank_8_as_peft_prints_them(model, targets, printed):
    assert adapter_parameters(find_model(model), rank=8, targets=targets) == printed


def test_all_linear_on_a_mixture_adapts_every_expert():
    # per layer at rank 3: 128 experts of 768 with gate and up fused at rank 6, down at 3; router; q, k, v, o
    h, m, experts, layers, r = 2_048, 768, 128, 48, 3
    attention = r * ((h + 4_096) * 2 + (h + 512) * 2)
    stacked = experts * (2 * r * (h + 2 * m) + r * (m + h)) + r * (h + experts)
    shape = find_model("Qwen/Qwen3-30B-A3B")
    assert adapter_parameters(shape, rank=r, targets=("all-linear",)) == layers * (attention + stacked)


def test_adapters_grow_with_rank_and_never_touch_the_head_unasked():
    shape = find_model("Qwen/Qwen2.5-7B")
    assert adapter_parameters(shape, rank=16, targets=("all-linear",)) == 2 * adapter_parameters(
        shape, rank=8, targets=("all-linear",)
    )
    with_head = adapter_parameters(shape, rank=8, targets=("q_proj", "lm_head"))
    assert with_head - adapter_parameters(shape, rank=8, targets=("q_proj",)) == 8 * (3_584 + 152_064)


def test_targets_that_name_nothing_adapt_nothing():
    assert adapter_parameters(find_model("gpt2"), rank=8, targets=("q_proj",)) == 0


def test_tensor_parallel_leaves_norms_routers_and_latent_down_projections_whole():
    shape = find_model("deepseek-ai/DeepSeek-V3")
    tensors = block_tensors(shape.block(-1), hidden=shape.hidden)
    whole = {t.module for t in tensors if not t.tensor_parallel}
    norms = {t.module for t in tensors if t.kind is Kind.NORM}
    assert whole == norms | {"q_a_proj", "kv_a_proj_with_mqa", "router"}
