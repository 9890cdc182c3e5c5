"""Are the activation laws those that were measured on PyTorch 2.13 (CPU and fake tensors), to the byte?

Every figure here was counted by a dispatch-level tracker, not computed by a formula.
"""

from __future__ import annotations

from dataclasses import replace

import pytest
from memory_shapes import (
    GEMMA,
    GEMMA2,
    GEMMA3,
    GPT2,
    HIDDEN,
    LLAMA,
    LLAMA_8B,
    NEOX,
    OLMO2,
    OPT,
    PHI3,
    QWEN3,
    QWEN3_MOE,
    SHAPE_8B,
    measured_pass,
)  # fmt: skip

from headcount.estimate import activations, logits
from headcount.estimate.activations import backward_hump, kept_per_block, live_block
from headcount.facts.model_shape import Block
from headcount.job.job import Adapter, AttentionKernel, Checkpointing, Kernels, MicroBatch, RowLayout, Tuning
from headcount.ledger.derivation import total

EAGER = AttentionKernel.EAGER


@pytest.mark.parametrize(
    ("block", "bf16", "fp32"),
    [
        pytest.param(LLAMA, 247_808, 444_416, id="llama, qwen2, mistral"),
        pytest.param(QWEN3, 299_008, 512_000, id="qwen3"),
        pytest.param(PHI3, 276_480, 501_760, id="phi3"),
        pytest.param(GEMMA, 273_152, 445_184, id="gemma"),
        pytest.param(GEMMA2, 485_888, 674_304, id="gemma2, eager because of its soft cap"),
        pytest.param(GEMMA3, 440_448, 612_480, id="gemma3"),
        pytest.param(GPT2, 243_712, 485_888, id="gpt2"),
        pytest.param(OPT, 129_024, 256_512, id="opt"),
        pytest.param(QWEN3_MOE, 280_864, 469_536, id="qwen3-moe"),
        pytest.param(OLMO2, 338_432, 510_464, id="olmo2"),
        pytest.param(NEOX, 182_272, 363_008, id="gpt-neox"),
    ],
)
def test_kept_per_block_is_what_was_measured(block: Block, bf16: int, fp32: int) -> None:
    assert total(kept_per_block(block, hidden=HIDDEN, run=measured_pass(s=2))) == bf16
    assert total(kept_per_block(block, hidden=HIDDEN, run=measured_pass(s=4))) == fp32


@pytest.mark.parametrize(
    ("block", "bf16", "fp32"),
    [
        (LLAMA, 336_384, 524_800),
        (QWEN3, 387_584, 592_384),
        (PHI3, 336_384, 524_800),
        (GEMMA, 361_728, 525_568),
        (GEMMA3, 529_024, 692_864),
        (GPT2, 266_752, 533_504),
        (OPT, 201_216, 304_128),
        (OLMO2, 427_008, 590_848),
        (NEOX, 217_600, 336_896),
    ],
)
def test_eager_attention_keeps_probabilities(block: Block, bf16: int, fp32: int) -> None:
    assert total(kept_per_block(block, hidden=HIDDEN, run=measured_pass(s=2, attention=EAGER))) == bf16
    assert total(kept_per_block(block, hidden=HIDDEN, run=measured_pass(s=4, attention=EAGER))) == fp32


@pytest.mark.parametrize(
    ("block", "bf16", "fp32"),
    [(LLAMA, 268_288, 485_376), (PHI3, 280_576, 509_952), (GPT2, 247_808, 494_080), (OLMO2, 358_912, 551_424)],
)
def test_a_mask_expands_keys_and_is_kept_once_per_layer(block: Block, bf16: int, fp32: int) -> None:
    assert total(kept_per_block(block, hidden=HIDDEN, run=measured_pass(s=2, rows=RowLayout.PADDED))) == bf16
    assert total(kept_per_block(block, hidden=HIDDEN, run=measured_pass(s=4, rows=RowLayout.PADDED))) == fp32


def test_flash_attention_never_sees_a_mask() -> None:
    padded = measured_pass(attention=AttentionKernel.FLASH, rows=RowLayout.PADDED)
    assert total(kept_per_block(LLAMA, hidden=HIDDEN, run=padded)) == 247_808


def test_autocast_keeps_a_cast_input_per_linear_and_every_cast_weight() -> None:
    assert total(kept_per_block(LLAMA, hidden=HIDDEN, run=measured_pass(autocast=True))) == 487_424


@pytest.mark.parametrize(
    ("targets", "per_token"),
    [
        (("q_proj", "v_proj"), (2864, 3456, 3440, 4224)),
        (("q_proj", "k_proj", "v_proj", "o_proj"), (2880, 4256, 4224, 5792)),
        (("gate_proj", "up_proj", "down_proj"), (3320, 4368, 4344, 6032)),
        (("all-linear",), (3544, 5968, 5912, 9168)),
    ],
)
def test_lora_keeps_more_than_full_fine_tuning_when_its_adapters_are_fp32(
    targets: tuple[str, ...], per_token: tuple[int, ...]
) -> None:
    got = []
    for dropout, weight_bytes in ((0.0, 2), (0.0, 4), (0.1, 2), (0.1, 4)):
        adapter = Adapter(rank=4, targets=targets, weight_bytes=weight_bytes, dropout=dropout)
        run = measured_pass(tuning=Tuning.LORA, adapter=adapter)
        got.append(total(kept_per_block(LLAMA, hidden=HIDDEN, run=run)) / 64)
    assert tuple(got) == per_token


@pytest.mark.parametrize(
    ("block", "s", "attention", "checkpointed", "per_token"),
    [
        pytest.param(LLAMA, 2, "sdpa", False, 906.5, id="llama: 2sf, and f·h·s over 4,096 tokens"),
        pytest.param(LLAMA, 4, "sdpa", False, 1813.0, id="llama fp32"),
        pytest.param(LLAMA, 4, "sdpa", True, 8373.0, id="llama fp32: the input is the checkpoint"),
        pytest.param(LLAMA, 2, "eager", True, 7314.5, id="llama eager"),
        pytest.param(GEMMA3, 2, "sdpa", False, 1532.0, id="gemma3: the norm behind the MLP leads"),
        pytest.param(OLMO2, 2, "sdpa", False, 1532.0, id="olmo2"),
        pytest.param(NEOX, 2, "sdpa", True, 3114.5, id="gpt-neox"),
        pytest.param(QWEN3_MOE, 2, "sdpa", False, 1152.0, id="experts: 3·k·h·s"),
    ],
)
def test_backward_of_a_block_peaks_where_it_was_measured(
    block: Block, s: int, attention: str, checkpointed: bool, per_token: float
) -> None:
    tokens, residual = 64 * 64, 96 * s
    mode = Checkpointing.FULL if checkpointed else Checkpointing.NONE
    run = measured_pass(s=s, sequences=64, row_tokens=64, attention=AttentionKernel(attention), checkpointing=mode)
    terms = live_block(block, hidden=HIDDEN, run=run)
    hump = total(terms) if checkpointed else backward_hump(block, hidden=HIDDEN, run=run).value
    # Tenths: the tracker's figures per token are rounded to one decimal.
    assert hump / tokens - residual == pytest.approx(per_token, abs=0.11)


def _run_8b(checkpointing: Checkpointing) -> activations.Pass:
    micro_batch = MicroBatch(sequences=1, row_tokens=4096, logit_tokens=4096)
    return activations.Pass(micro_batch=micro_batch, kernels=Kernels(checkpointing=checkpointing))


@pytest.mark.parametrize(("checkpointing", "gigabytes"), [(Checkpointing.NONE, 32.76), (Checkpointing.FULL, 7.51)])
def test_8b_at_4096_tokens_peaks_under_its_logits(checkpointing: Checkpointing, gigabytes: float) -> None:
    run = _run_8b(checkpointing)
    assert total(kept_per_block(LLAMA_8B, hidden=4096, run=run)) == 200_840 * 4096
    alive = total(activations.trunk(SHAPE_8B, run=run)) + activations.final_norm(SHAPE_8B, run).value
    alive += logits.peak_logits(SHAPE_8B, run=run).value
    assert alive / 1e9 == pytest.approx(gigabytes, abs=0.01)


def test_8b_block_hump_is_a_third_of_the_logits_hump() -> None:
    run = _run_8b(Checkpointing.FULL)
    kept = activations.checkpoints(SHAPE_8B, run=run).value + total(live_block(LLAMA_8B, hidden=4096, run=run))
    down_gradient = 14336 * 4096 * 2
    assert (kept - down_gradient) / 1e9 == pytest.approx(2.17, abs=0.01)


def test_activation_offload_leaves_two_checkpoints() -> None:
    run = _run_8b(Checkpointing.FULL)
    offloaded = replace(run, kernels=replace(run.kernels, offload_checkpoints=True))
    whole, left = (activations.checkpoints(SHAPE_8B, run=each).value for each in (run, offloaded))
    assert left == whole * 2 / 32


def test_selective_checkpointing_lies_between_none_and_full() -> None:
    none, some, full = (
        total(activations.trunk(SHAPE_8B, run=_run_8b(mode)))
        for mode in (Checkpointing.NONE, Checkpointing.SELECTIVE, Checkpointing.FULL)
    )
    assert full < some < none


def test_no_grad_forward_of_a_critic_is_one_mlp_wide() -> None:
    # 8 rows of 64 tokens, tiny Llama, bf16: N·s(3f + 4h) + 2·T·d·s + 8·T, measured with residual 0.
    run = measured_pass(sequences=8, row_tokens=64)
    shape = replace(SHAPE_8B, hidden=HIDDEN, blocks=((2, LLAMA),))
    assert activations.no_grad_trunk(shape, run=run).value == 512 * 2 * (3 * 224 + 4 * 96) + 64 * (2 * 16 * 2 + 8)


@pytest.mark.parametrize(
    ("targets", "weight_bytes", "dropout", "checkpointed", "per_token"),
    [
        (("q_proj", "v_proj"), 4, 0.0, False, 1344),  # no input of down is kept: three gradients, 3·s·f
        (("q_proj", "v_proj"), 2, 0.0, True, 1344),
        (("all-linear",), 2, 0.0, False, 888),
        (("all-linear",), 2, 0.0, True, 888),
        (("all-linear",), 4, 0.0, False, 1088),
        (("all-linear",), 4, 0.0, True, 1840),
        (("all-linear",), 4, 0.1, True, 2496),
        (("all-linear",), 2, 0.1, True, 1216),
    ],
)
def test_backward_of_a_lora_block(
    targets: tuple[str, ...], weight_bytes: int, dropout: float, checkpointed: bool, per_token: int
) -> None:
    # Measured with peft 0.21; the adapters' own weight gradients (2.5 bytes a token at 2,048 tokens) are not in it.
    adapter = Adapter(rank=4, targets=targets, weight_bytes=weight_bytes, dropout=dropout)
    mode = Checkpointing.FULL if checkpointed else Checkpointing.NONE
    run = measured_pass(tuning=Tuning.LORA, adapter=adapter, checkpointing=mode)
    assert backward_hump(LLAMA, hidden=HIDDEN, run=run).value / 64 - 2 * HIDDEN == per_token


@pytest.mark.parametrize(("weight_bytes", "gigabytes"), [(4, 2.72), (2, 2.10)])
def test_8b_lora_on_all_linears_at_4096_tokens(weight_bytes: int, gigabytes: float) -> None:
    run = _run_8b(Checkpointing.FULL)
    run = replace(run, tuning=Tuning.LORA, adapter=Adapter(rank=16, weight_bytes=weight_bytes))
    alive = activations.checkpoints(SHAPE_8B, run=run).value + total(live_block(LLAMA_8B, hidden=4096, run=run))
    assert alive / 1e9 == pytest.approx(gigabytes, abs=0.005)


def test_eager_checkpoints_hold_their_mask() -> None:
    # Gemma 2, 64 rows of 64 tokens: 524,288 bytes, once, not per layer.
    shape = replace(SHAPE_8B, hidden=HIDDEN, blocks=((3, GEMMA2),))
    run = measured_pass(sequences=64, row_tokens=64, checkpointing=Checkpointing.FULL)
    assert activations.trunk(shape, run=run)["attention masks"].value == 524_288


@pytest.mark.parametrize(
    ("block", "targets", "attention", "per_token", "live"),
    [
        pytest.param(GPT2, ("c_attn",), "sdpa", 3176, 4328, id="gpt2"),
        pytest.param(OPT, ("q_proj", "v_proj"), "sdpa", 1840, 2544, id="opt"),
        pytest.param(PHI3, ("qkv_proj",), "sdpa", 3112, 4456, id="phi3"),
        pytest.param(PHI3, ("all-linear",), "sdpa", 3968, 5240, id="phi3, every linear"),
        pytest.param(GEMMA3, ("q_proj", "v_proj"), "sdpa", 4185.625, 6101.2, id="gemma3"),
        pytest.param(GEMMA2, ("q_proj", "v_proj"), "eager", 6753.5, 8669.1, id="gemma2"),
        pytest.param(OLMO2, ("q_proj", "v_proj"), "sdpa", 3384, 5108, id="olmo2"),
        pytest.param(NEOX, ("query_key_value",), "sdpa", 2024, 2728, id="gpt-neox"),
        pytest.param(
            replace(QWEN3_MOE, mlp=replace(QWEN3_MOE.mlp, normalised=True)),
            ("q_proj", "v_proj"),
            "sdpa",
            3040.03125,
            4636.1,
            id="qwen3-moe",
        ),
    ],
)
def test_a_frozen_base_with_16_bit_adapters(
    block: Block, targets: tuple[str, ...], attention: str, per_token: float, live: float
) -> None:
    # 16 rows of 64 tokens, rank 4; `live` is the recomputed block at its backward's peak, residual gradient apart.
    run = measured_pass(
        sequences=16,
        row_tokens=64,
        attention=AttentionKernel(attention),
        checkpointing=Checkpointing.FULL,
        tuning=Tuning.LORA,
        adapter=Adapter(rank=4, targets=targets, weight_bytes=2),
    )
    assert total(kept_per_block(block, hidden=HIDDEN, run=run)) == per_token * 1024
    # 0.1 %: adapter gradients and tenths of a byte.
    alive = total(live_block(block, hidden=HIDDEN, run=run)) / 1024 - 2 * HIDDEN
    assert alive == pytest.approx(live, rel=1e-3)
