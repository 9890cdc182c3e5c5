"""Free-text settings as sources write them. Each text is taken from a published row or a report."""

import pytest

from headcount.measure.mapping.words import (
    attention_of,
    checkpointing_of,
    method_of,
    notes_of,
    optimizer_of,
    precision_of,
)  # fmt: skip


@pytest.mark.parametrize(
    ("text", "tuning", "rank", "targets", "base"),
    [
        ("full", "full", None, (), None),
        ("full (scripts pass actor_lora_dim 128 for the larger sizes)", "full", None, (), None),
        ("lora r=16", "lora", 16, (), None),
        ("lora r=8 (q,v)", "lora", 8, ("q_proj", "v_proj"), None),
        ("lora r=32 (all-linear)", "lora", 32, ("all-linear",), None),
        ("lora r=8 (c_attn)", "lora", 8, ("c_attn",), None),
        ("qlora r=64 (int4 GPTQ base)", "qlora", 64, (), "gptq"),
        ("qlora r=8 (q,v), bnb.nf4", "qlora", 8, ("q_proj", "v_proj"), "nf4"),
        ("qlora r=32 (all-linear, 4-bit)", "qlora", 32, ("all-linear",), "nf4"),
    ],
)
def test_method(text, tuning, rank, targets, base):
    method = method_of(text)
    assert method is not None
    assert (method.tuning, method.rank, method.targets, method.base) == (tuning, rank, targets, base)


def test_trained_ends_of_a_lora_run():
    method = method_of("lora r=64 + trainable embedding and output layer")
    assert method is not None
    assert method.train_ends


def test_targets_may_stand_in_the_notes():
    method = method_of("lora r=16", notes="Stock HF. LoRA on q,k,v,o. ")
    assert method is not None
    assert method.targets == ("q_proj", "k_proj", "v_proj", "o_proj")


def test_inference_is_no_method():
    assert method_of("inference") is None


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("bf16", None),
        ("bf16 base, LoRA trainable", None),
        ("pure bf16 (weights, gradients and Adam state)", "pure-16"),
        ("bf16-true", "pure-16"),
        ("bf16 throughout (weights, gradients, moments)", "pure-16"),
        ("bf16 weights and optimizer state (single GPU, no fp32 master)", "pure-16"),
        ("fp32 params + bf16 mixed (FSDP2)", "master-32"),
        ("bf16 compute; sharded params apparently upcast to fp32 by FSDP", "master-32"),
        ("fp16 with fp32 states", "master-32"),
        ("bf16 weights, fp32 moments", "direct-16"),
        ("fp32", "full-32"),
    ],
)
def test_precision(text, kind):
    assert precision_of(text) == kind


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("AdamW", None),
        ("AdamW (HF default)", None),
        ("distributed fused Adam", None),
        ("8-bit AdamW, optimizer in backward", "adamw-8bit"),
        ("PagedAdamW 8-bit", "paged-adamw-8bit"),
        ("FusedAdam", "adamw-fused"),
    ],
)
def test_optimizer(text, name):
    assert optimizer_of(text) == name


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (True, ("full", False)),
        (False, ("none", False)),
        (None, (None, False)),
        ("selective (per-op)", ("selective", False)),
        ("full recompute + activation CPU offload", ("full", True)),
        ("offloaded", ("full", True)),
    ],
)
def test_checkpointing(value, expected):
    assert checkpointing_of(value) == expected


@pytest.mark.parametrize(
    ("text", "kernel"),
    [("FA3", "flash"), ("flash-attn 2", "flash"), ("SDPA/flash", "flash"), ("sdpa", "sdpa"), ("eager", "eager"),
     ("no flash attention (V100)", "eager"), (None, None)],
)  # fmt: skip
def test_attention(text, kernel):
    assert attention_of(text) == kernel


def test_liger_is_a_fused_linear_loss_unless_denied():
    assert notes_of("Liger kernel.").loss == "fused-linear"
    assert notes_of("Figure is the rounded number. No Liger.").loss is None


def test_a_rung_of_a_cumulative_ladder_has_all_that_came_before():
    # torchtune README: each row adds one optimisation.
    rung = notes_of("Cumulative ladder, + chunked cross-entropy.")
    assert (rung.compiled, rung.loss, rung.optimizer_in_backward) == (True, "chunked", False)
    assert notes_of("Cumulative ladder, no packing, no compile, no AC.").compiled is False
