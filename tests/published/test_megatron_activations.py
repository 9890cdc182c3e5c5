"""Korthikanti et al., arXiv:2205.05198, table 2: activation bytes per layer of a GPT block, and how ours differ.

The paper counts dropout masks and eager attention: sbh(34 + 5·a·s/h), sbh(10 + 24/t + 5·a·s/(h·t)) under tensor
parallelism, sbh/t·(34 + 5·a·s/h) with sequence parallelism. Without dropout two byte masks (2sbh) go, and of the
attention core 5as²b only the probabilities (2as²b) stay. LayerNorm's fp32 statistics, 16 bytes a token, are ours.
"""

from __future__ import annotations

import pytest

from headcount.estimate.activations import Pass, kept_per_block
from headcount.estimate.sharding import in_flight_micro_batches
from headcount.facts.model_shape import Activation, Attention, Block, DenseMlp, Norm
from headcount.job.job import AttentionKernel, Checkpointing, Kernels, MicroBatch
from headcount.job.layout import Layout
from headcount.ledger.derivation import total

# The models of table 3: heads, hidden; sequence 2,048.
MODELS = {"22B": (64, 6144), "GPT-3 175B": (96, 12288), "MT-NLG 530B": (128, 20480), "1T": (160, 25600)}
SEQUENCE = 2048


def _gpt_block(heads: int, hidden: int) -> Block:
    return Block(
        attention=Attention(
            heads=heads, kv_heads=heads, head_dim=hidden // heads, fused_qkv=True, qkv_name="c_attn", q_bias=True
        ),
        mlp=DenseMlp(width=4 * hidden, gated=False, bias=True, activation=Activation.GELU),
        norm=Norm.LAYER,
        norm_bias=True,
    )


def _ours(model: str, *, tensor: int = 1, sequence_parallel: bool = False, core: bool = True) -> float:
    heads, hidden = MODELS[model]
    run = Pass(
        micro_batch=MicroBatch(sequences=1, row_tokens=SEQUENCE, logit_tokens=SEQUENCE),
        kernels=Kernels(attention=AttentionKernel.EAGER, checkpointing=Checkpointing.NONE),
        tensor=tensor,
        sequence_parallel=sequence_parallel,
    )
    terms = kept_per_block(_gpt_block(heads, hidden), hidden=hidden, run=run)
    if not core:
        terms.pop("attention probabilities")
    return total(terms)


@pytest.mark.parametrize("model", MODELS)
def test_one_gpu_is_34sbh_and_5as2b_less_what_dropout_kept(model: str) -> None:
    heads, hidden = MODELS[model]
    classical = SEQUENCE * hidden * (34 + 5 * heads * SEQUENCE / hidden)
    dropout = 2 * SEQUENCE * hidden + 3 * heads * SEQUENCE**2
    assert _ours(model) == pytest.approx(classical - dropout + 16 * SEQUENCE, rel=1e-12)


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("t", [2, 4, 8])
def test_tensor_parallel_divides_24_of_34(model: str, t: int) -> None:
    _, hidden = MODELS[model]
    classical = SEQUENCE * hidden * (10 + 24 / t)
    masks = 2 * SEQUENCE * hidden
    assert _ours(model, tensor=t, core=False) == classical - masks + 16 * SEQUENCE


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("t", [2, 4, 8])
def test_sequence_parallel_divides_all_34(model: str, t: int) -> None:
    _, hidden = MODELS[model]
    classical = SEQUENCE * hidden * 34 / t
    masks = 2 * SEQUENCE * hidden / t
    ours = _ours(model, tensor=t, sequence_parallel=True, core=False)
    assert ours == pytest.approx(classical - masks + 16 * SEQUENCE / t)


@pytest.mark.parametrize(("model", "published"), [("GPT-3 175B", 80), ("MT-NLG 530B", 64)])
def test_attention_core_weighs_80_and_64_against_34(model: str, published: int) -> None:
    # Section 5 of the paper: 5as/h = 80 for GPT-3 and 64 for MT-NLG; ours holds 2 of the 5 without dropout.
    _, hidden = MODELS[model]
    core = _ours(model) - _ours(model, core=False)
    assert core / (SEQUENCE * hidden) == pytest.approx(published * 2 / 5)


def test_first_stage_of_a_pipeline_holds_all_layers_and_interleaving_more() -> None:
    # Section 4.2.3: L/p layers × p micro-batches; interleaved: L(1 + (p − 1)/(p·m)).
    plain = Layout(gpus=8, pipeline=8, pipeline_micro_batches=64)
    interleaved = Layout(gpus=8, pipeline=8, virtual_pipeline=4, pipeline_micro_batches=64)
    assert in_flight_micro_batches(plain).value == 8
    assert in_flight_micro_batches(interleaved).value == pytest.approx(8 * (1 + 7 / (8 * 4)))
