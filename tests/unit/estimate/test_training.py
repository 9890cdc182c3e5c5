"""One training step against closed forms: FLOPs at peak, what runs beside what, what layouts divide."""

from __future__ import annotations

import time
from dataclasses import replace
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headcount.errors import UnknownFact
from headcount.estimate.training import (
    Spread,
    forward_model,
    forward_seconds,
    micro_parts,
    micro_seconds,
    passes_of,
    step_seconds,
    training_model,
    training_of,
)
from headcount.facts.gpu import find_gpu
from headcount.facts.link import find_fabric
from headcount.facts.models import find_model
from headcount.facts.training_speed import FRAMEWORKS, training_speed

H100, A100 = find_gpu("h100-sxm5-80gb"), find_gpu("a100-sxm4-80gb")
NDR = find_fabric("ndr-400")
DENSE, MIXTURE = find_model("meta-llama/Llama-3.1-8B"), find_model("Qwen/Qwen3-30B-A3B")
FULL, LORA = passes_of(full=True, recompute=0.0), passes_of(full=False, recompute=0.0)
PASS = passes_of(full=True, recompute=0.0, gradient=False)
SPEED = training_speed("hopper", "bf16", "megatron", mixture=False)
MIXED = training_speed("hopper", "bf16", "megatron", mixture=True)
# Every share 1, nothing of the host, no traffic, nothing hidden: what physics leaves.
IDEAL = SimpleNamespace(
    gemm=1.0, small=0.0, head=1.0, logit=0.0, attention=1.0, element=0.0, cast=0.0, launch_s=0.0, hook_s=0.0,
    unpack_s=0.0, sync_s=0.0, route_s=0.0, ahead=1.0, optimizer=1.0, wire=1.0, overlap=1.0, hop_s=0.0,
    tensor_beside=1.0, context_exposed=1.0, stage_exposed=1.0, gradient_exposed=1.0, near_exposed=1.0, far_exposed=1.0,
    bubble=1.0, expert=1.0, permute=0.0, step_s=0.0,
)  # fmt: skip


def work(shape=DENSE, gpu=H100, *, passes=FULL, tokens=8192.0, row_tokens=4096.0, spread=None, **more):
    return training_of(shape, gpu, NDR, spread or Spread(), passes, tokens=tokens, row_tokens=row_tokens, **more)


def ideal(**over):
    return SimpleNamespace(**{**vars(IDEAL), **over})


# --- what a micro-batch computes -----------------------------------------------------------------------------------


def test_six_flops_a_weight_and_token_and_seven_forwards_of_scores_in_two() -> None:
    weights = 8_030_261_248 - 128_256 * 4_096 - 65 * 4_096  # but the looked-up table and the norms
    scores = 2 * 32 * 32 * 128 * 4096  # layers × heads × width: causal, half of 4 FLOPs
    expected = (6 * weights + 3.5 * scores) * 8192 / 989.5e12
    assert micro_seconds(work(optimizer_bytes=0.0), IDEAL) == pytest.approx(expected, rel=1e-3)


def test_lora_spares_the_weight_gradients_and_recompute_adds_a_forward() -> None:
    kinds = (PASS, LORA, FULL, passes_of(full=True, recompute=1.0))
    seconds = [micro_parts(work(passes=passes), IDEAL)["matrix products"] for passes in kinds]
    assert [each / seconds[0] for each in seconds] == pytest.approx([1, 2, 3, 4])


def test_a_pass_without_gradient_is_a_third_of_an_update_without_recompute() -> None:
    update = micro_parts(work(), IDEAL)
    score = micro_parts(work(passes=PASS), IDEAL)
    assert update["matrix products"] / score["matrix products"] == pytest.approx(3)
    assert update["attention"] / score["attention"] == pytest.approx(3.5)
    assert update["vocabulary head"] / score["vocabulary head"] == pytest.approx(3)


def test_a_window_bounds_what_a_token_sees() -> None:
    windowed = find_model("openai/gpt-oss-120b")
    short, long = (work(windowed, row_tokens=rows).attention_s for rows in (4096, 8192))
    assert 1.9 < long / short < 2.0  # half of the layers see 128 tokens


def test_a_scalar_head_has_no_logits() -> None:
    assert work(scalar_head=True).logit_s == pytest.approx(work().logit_s / 128_256)


def test_small_products_are_bound_by_their_bytes() -> None:
    share = [
        work(tokens=t).gemm_s * 3 / micro_parts(work(tokens=t), SPEED)["matrix products"] for t in (256, 2048, 65536)
    ]
    assert share == sorted(share)
    assert share[0] < 0.3
    assert 0.6 < share[2] < 1


def test_only_8_bit_inputs_are_cast() -> None:
    assert work().cast_s == 0
    assert work(precision="fp8").cast_s == work().element_s


# --- what runs beside what -----------------------------------------------------------------------------------------


def test_a_host_that_is_ahead_costs_nothing_and_one_that_is_late_sets_the_pace() -> None:
    device = micro_seconds(work(), IDEAL)
    quick, slow = ideal(launch_s=1e-4, ahead=50.0), ideal(launch_s=1.0, ahead=50.0)
    assert micro_seconds(work(), quick) == pytest.approx(device)
    assert micro_seconds(work(), slow) == pytest.approx(32)


def test_below_a_thousand_tokens_an_eager_micro_batch_stops_getting_shorter() -> None:
    eager = training_speed("ampere", "bf16", "hf", mixture=False)
    at = {t: micro_seconds(work(gpu=A100, tokens=t, row_tokens=t, passes=LORA), eager) for t in (128, 256, 4096)}
    assert at[256] / at[128] < 1.3
    assert at[4096] / at[256] > 5


def test_gathers_are_added_or_hidden() -> None:
    sharded = work(spread=Spread(data=64, sharded=True))
    alone = sum(seconds for name, seconds in micro_parts(sharded, IDEAL).items() if name != "gathers")
    assert micro_seconds(sharded, IDEAL) == pytest.approx(alone + sharded.shard_wire_s)
    assert micro_seconds(sharded, ideal(overlap=50.0)) == pytest.approx(max(alone, sharded.shard_wire_s), rel=0.02)


def test_two_gathers_and_a_reduction_move_eight_bytes_a_weight() -> None:
    sharded = work(spread=Spread(data=8, sharded=True))
    assert sharded.shard_wire_s == pytest.approx(8_030_261_248 * 8 * 7 / 8 / 450e9)
    kept = work(spread=Spread(data=8, sharded=True, gathers=1))
    assert kept.shard_wire_s == pytest.approx(sharded.shard_wire_s * 6 / 8)


def test_a_pass_without_gradient_reduces_none() -> None:
    score = work(passes=PASS, spread=Spread(data=8, sharded=True, gathers=1))
    assert score.shard_wire_s == pytest.approx(8_030_261_248 * 2 * 7 / 8 / 450e9)
    assert score.optimizer_s == 0


def test_a_pipeline_gathers_once_a_step() -> None:
    one, four = (work(spread=Spread(data=8, pipeline=2, sharded=True, micro_batches=n)).shard_wire_s for n in (1, 4))
    assert one == pytest.approx(4 * four)


def test_only_gathered_and_unpacked_weights_pay_for_hooks() -> None:
    eager = ideal(launch_s=1e-3, hook_s=2e-3, unpack_s=4e-3, ahead=1.0)
    plain = micro_parts(work(), eager)["launches"]
    assert plain == pytest.approx(32e-3)
    assert micro_parts(work(spread=Spread(data=8, sharded=True)), eager)["launches"] == pytest.approx(96e-3)
    assert micro_parts(work(dequantised_bytes=1e10), eager)["launches"] == pytest.approx(160e-3)


def test_tensor_ranks_that_transfer_beside_products_wait_less() -> None:
    split = work(spread=Spread(tensor=8))
    exposed, beside = (micro_parts(split, ideal(tensor_beside=p))["wires"] for p in (1.0, 1.4))
    assert exposed == pytest.approx(split.tensor_wire_s)
    assert beside < 0.7 * exposed


# --- what a layout divides -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("degree", ["tensor", "pipeline"])
def test_tensor_and_pipeline_divide_the_products_of_a_micro_batch(degree: str) -> None:
    split = work(spread=Spread(**{degree: 4}))
    assert split.gemm_s == pytest.approx(work().gemm_s / 4)
    assert split.attention_s == pytest.approx(work().attention_s / 4)


def test_context_divides_tokens_and_hands_on_keys() -> None:
    split = work(spread=Spread(context=4))
    assert split.gemm_s == pytest.approx(work().gemm_s / 4)
    assert split.context_wire_s > 0


def test_the_bubble_is_stages_less_one_over_micro_batches_times_chunks() -> None:
    piped = work(spread=Spread(pipeline=4, virtual_pipeline=2, micro_batches=6), optimizer_bytes=0.0, trained=0.0)
    silent = ideal(stage_exposed=0.0)
    assert step_seconds(piped, silent) == pytest.approx(6 * micro_seconds(piped, silent) * (1 + 3 / 12))


def test_a_forward_pass_has_no_optimizer_and_no_gradients() -> None:
    score = work(passes=PASS, spread=Spread(data=8, micro_batches=3))
    assert forward_seconds(score, SPEED) == pytest.approx(3 * micro_seconds(score, SPEED))
    assert step_seconds(score, SPEED) > forward_seconds(score, SPEED)


def test_experts_are_divided_and_their_copies_travel() -> None:
    alone, spread = work(MIXTURE), work(MIXTURE, spread=Spread(data=8, expert=8))
    assert alone.local_experts == 48 * 128
    assert spread.local_experts == 48 * 16
    assert alone.near_s == alone.far_s == spread.far_s == 0
    assert spread.near_s == pytest.approx(4 * 8192 * 2048 * 2 * 8 * 48 * 7 / 8 / 450e9)
    assert work(MIXTURE, spread=Spread(data=64, expert=64)).far_s > spread.near_s


def test_more_tokens_an_expert_make_better_products() -> None:
    assert work(MIXTURE, tokens=65536).expert_small < work(MIXTURE, tokens=4096).expert_small


def test_a_small_mixture_at_micro_batch_one_waits_for_its_host() -> None:
    spread = Spread(data=8, expert=8)
    blackwell = training_speed("blackwell", "bf16", "megatron", mixture=True)
    parts = micro_parts(work(MIXTURE, find_gpu("b200-sxm"), tokens=4096, spread=spread), blackwell)
    assert parts["launches"] > sum(s for name, s in parts.items() if name != "launches") / 4
    dense = micro_parts(work(tokens=4096), SPEED)
    assert dense["launches"] < 0.02 * sum(dense.values())


@given(
    tokens=st.floats(64, 1e6),
    tensor=st.sampled_from([1, 2, 4, 8]),
    pipeline=st.sampled_from([1, 2, 4]),
    micro_batches=st.integers(1, 64),
    mixture=st.booleans(),
)
def test_no_step_beats_the_peak_and_more_tokens_take_longer(tokens, tensor, pipeline, micro_batches, mixture) -> None:
    shape, speed = (MIXTURE, MIXED) if mixture else (DENSE, SPEED)
    spread = Spread(data=8, tensor=tensor, pipeline=pipeline, expert=8 if mixture else 1, micro_batches=micro_batches)
    some, more = (work(shape, tokens=t, spread=spread) for t in (tokens, 1.5 * tokens))
    assert step_seconds(some, speed) >= micro_batches * 3 * (some.gemm_s + some.expert_s)
    assert step_seconds(more, speed) > step_seconds(some, speed)


# --- a step in parts -----------------------------------------------------------------------------------------------


def test_the_parts_add_up_to_the_step() -> None:
    spread = Spread(data=8, tensor=4, pipeline=2, micro_batches=8)
    told = training_model(
        DENSE, H100, spread, micro_batch_tokens=8192, row_tokens=4096, framework="megatron", fabric=NDR
    )
    whole = step_seconds(work(spread=spread), SPEED)
    assert told.total.p50 == pytest.approx(whole)
    low, high = SPEED.spread
    assert (told.total.p10, told.total.p90) == pytest.approx((low * whole, high * whole))
    assert min(part.p50 for part in (told.products, told.attention, told.element_wise, told.communication)) > 0
    assert told.bubble.p50 / (whole - told.bubble.p50 - told.optimizer.p50) == pytest.approx(SPEED.bubble / 8, rel=0.05)


def test_a_pass_without_gradient_in_parts() -> None:
    spread = Spread(data=8, sharded=True, micro_batches=4)
    told = forward_model(DENSE, H100, spread, micro_batch_tokens=8192, row_tokens=4096, fabric=NDR)
    speed = training_speed("hopper", "bf16", "fsdp", mixture=False)
    assert told.total.p50 == pytest.approx(forward_seconds(work(passes=PASS, trained=0.0, spread=spread), speed))
    assert told.optimizer.p50 == 0


def test_qlora_unpacks_every_weight_in_every_pass() -> None:
    lora, qlora = (
        training_model(
            DENSE, A100, Spread(), tuning=kind, micro_batch_tokens=4096, row_tokens=4096, framework="hf", trained=0.005
        )
        for kind in ("lora", "qlora")
    )
    unpacked = 2 * 2.5 * 8_030_261_248 / 2039e9  # forward and backward
    assert qlora.products.p50 - lora.products.p50 == pytest.approx(unpacked, rel=0.01)


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_every_class_of_trainer_has_constants(framework: str) -> None:
    speed = training_speed("hopper", "bf16", framework, mixture=False)
    assert speed.spread[0] < 1 < speed.spread[1]
    assert step_seconds(work(), speed) > 0


def test_units_that_no_row_measures_say_so_and_have_twice_the_band() -> None:
    measured = training_speed("blackwell", "fp8", "megatron", mixture=False)
    assumed = training_speed("blackwell", "fp4", "megatron", mixture=False)
    assert assumed.spread == pytest.approx(tuple(each**2 for each in measured.spread))
    assert "prior" in assumed.source


def test_newer_libraries_spend_less_on_routing() -> None:
    old, new = (training_speed("hopper", "bf16", "megatron", mixture=True, release=year) for year in (2025.0, 2026.5))
    mixture = work(MIXTURE, spread=Spread(data=8, expert=8))
    assert step_seconds(mixture, new) < step_seconds(mixture, old)


@pytest.mark.parametrize(("architecture", "precision"), [("abacus", "bf16"), ("ampere", "fp8"), ("hopper", "fp4")])
def test_what_nobody_measured_is_refused(architecture: str, precision: str) -> None:
    with pytest.raises(UnknownFact, match="nobody measured"):
        training_speed(architecture, precision, "fsdp", mixture=False)


def test_a_card_without_8_bit_units_or_bandwidth_is_refused() -> None:
    with pytest.raises(UnknownFact, match="fp8 peak"):
        work(gpu=A100, precision="fp8")
    with pytest.raises(UnknownFact, match="bandwidth"):
        work(gpu=replace(H100, bytes_per_s=None))


def test_a_search_can_ask_ten_thousand_times_a_second() -> None:
    spreads = [Spread(data=8, tensor=tensor, micro_batches=n) for tensor in (1, 2, 4, 8) for n in range(1, 51)]
    begin = time.process_time()
    for spread in spreads:
        step_seconds(work(spread=spread), SPEED)
    assert (time.process_time() - begin) / len(spreads) < 200e-6  # some 25 µs on an idle core
