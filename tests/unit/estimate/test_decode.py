"""One decode step against closed forms: bytes read once, experts touched, what layouts divide, who waits for whom."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headcount.errors import UnknownFact
from headcount.estimate.decode import decode_model, load_at, step_seconds
from headcount.estimate.replica import Replica, replica_of
from headcount.estimate.serving import concurrency_at_load, serving_at, serving_of, serving_rate, tokens_per_s
from headcount.facts.decode_speed import decode_speed
from headcount.facts.gpu import find_gpu
from headcount.facts.models import find_model

H100 = find_gpu("h100-sxm5-80gb")  # 3,350 GB/s, 989.5 TFLOP/s in BF16
DENSE, MIXTURE = "meta-llama/Llama-3.1-8B", "Qwen/Qwen3-30B-A3B"
SPEED = decode_speed("hopper", "bf16", "vllm", mixture=False)
# Every share 1, every cost of the host, the passes and the wire 0: what physics leaves.
IDEAL = SimpleNamespace(
    weights=1.0, compute=1.0, cache=1.0, prefill=1.0, layer_s=0.0, moe_layer_s=0.0, mla_layer_s=0.0, step_s=0.0,
    request_s=0.0, prefill_s=0.0, collective_s=0.0, hidden_passes=0.0, exchange=1.0, stage_wait=0.0,
)  # fmt: skip


def replica(model: str = DENSE, *, gpu: str = "h100-sxm5-80gb", precision: str = "bf16", **layout: int) -> Replica:
    return replica_of(find_model(model), find_gpu(gpu), precision=precision, kv_bytes=2, **layout)


def test_a_step_reads_every_parameter_but_the_looked_up_table_once() -> None:
    # 8,030,261,248 parameters, of which 128,256 × 4,096 are the embedding
    read_bytes = (8_030_261_248 - 128_256 * 4_096) * 2
    assert load_at(replica(), 1, 1).weights_s == pytest.approx(read_bytes / 3.35e12, rel=1e-4)


def test_a_cached_token_of_an_8b_is_128_kib() -> None:
    assert load_at(replica(), 4, 4_000).cache_s == pytest.approx(4_000 * 131_072 / 3.35e12)


def test_two_flops_a_weight_and_four_a_head_width_and_cached_token() -> None:
    attention = 4 * 32 * 32 * 128  # layers × heads × head width: scores and weighted values
    weights = 8_030_261_248 - 128_256 * 4_096
    got = load_at(replica(), 10, 10 * 500).compute_s
    assert got == pytest.approx(10 * (2 * weights + attention * 500) / 989.5e12, rel=1e-3)


def test_one_token_touches_its_experts_and_many_touch_all() -> None:
    one = replica(MIXTURE)  # 8 of 128
    touched = [
        (load_at(one, live, live).weights_s * 3.35e12 - one.dense_bytes) / one.expert_bytes for live in (1, 4096)
    ]
    assert touched == pytest.approx([8 / 128, 1.0])


def test_tensor_ranks_divide_key_heads_until_there_is_one_each() -> None:
    cached = [load_at(replica(tensor=tensor), 1, 1000).cache_s for tensor in (1, 4, 8)]
    assert cached[0] / cached[1] == pytest.approx(4)
    assert cached[0] / cached[2] == pytest.approx(8)  # 8 key heads
    few = [load_at(replica("Qwen/Qwen2.5-7B-Instruct", tensor=tensor), 1, 1000).cache_s for tensor in (4, 8)]
    assert few[0] == few[1]  # 4 key heads: the other ranks hold copies


def test_every_tensor_rank_reads_the_whole_latent_cache() -> None:
    # DeepSeek-V3: 61 layers × (512 + 64) numbers a token, arXiv:2412.19437
    for tensor in (8, 16):
        got = load_at(replica("deepseek-ai/DeepSeek-V3", gpu="h200", tensor=tensor), 1, 1000).cache_s
        assert got == pytest.approx(1000 * 61 * 576 * 2 / find_gpu("h200").bandwidth())


def test_a_window_caps_what_half_of_gpt_oss_reads() -> None:
    one = replica("openai/gpt-oss-20b", precision="fp4")  # 12 of 24 layers see 128 tokens; 8 key heads of 64
    full = 12 * 2 * 8 * 64 * 2
    longer, shorter = load_at(one, 1, 9_000).cache_s, load_at(one, 1, 8_000).cache_s
    assert longer - shorter == pytest.approx(1_000 * full / 3.35e12)
    assert load_at(one, 1, 100).cache_s == pytest.approx(100 * 2 * full / 3.35e12)


def test_four_bit_mixtures_keep_attention_and_head_in_sixteen() -> None:
    four, sixteen = replica("openai/gpt-oss-20b", precision="fp4"), replica("openai/gpt-oss-20b")
    assert four.expert_bytes / sixteen.expert_bytes == pytest.approx(0.5625 / 2)  # 16 numbers share an 8-bit scale
    assert four.dense_bytes > 0.95 * sixteen.dense_bytes


def test_stages_in_turn_take_as_long_as_one_card_for_the_weights() -> None:
    whole = step_seconds(load_at(replica(), 8, 8), IDEAL)
    staged = step_seconds(load_at(replica(pipeline=4), 32, 32), IDEAL)  # 8 at once on each of 4 stages
    assert staged == pytest.approx(whole)


def test_a_collective_that_leaves_the_host_waits_five_times_as_long() -> None:
    inside = load_at(replica(gpu="gb200", tensor=4), 1, 1).collectives  # 4 cards a host
    across = load_at(replica(gpu="gb200", tensor=8), 1, 1).collectives
    assert inside == 2 * 32 * 2  # two all-reduces in each of 32 layers, log2(4) hops
    assert across == 2 * 32 * 3 * 5
    assert load_at(replica(), 1, 1).collectives == 0


def test_parallel_blocks_reduce_once() -> None:
    assert replica("tiiuae/falcon-180B", precision="fp8", tensor=8).reduces == 80
    assert replica().reduces == 64


def test_ranks_of_attention_data_parallelism_share_experts_and_split_the_batch() -> None:
    alone, shared = replica(MIXTURE), replica(MIXTURE, attention_data=4)
    assert shared.dense_bytes == alone.dense_bytes
    assert shared.expert_bytes == alone.expert_bytes / 4
    assert load_at(shared, 64, 64_000).cache_s == pytest.approx(load_at(alone, 16, 16_000).cache_s)


def test_the_host_works_beside_the_device() -> None:
    load = load_at(replica(), 64, 64_000)
    slow_host = SimpleNamespace(**{**vars(IDEAL), "step_s": 1.0})
    assert step_seconds(load, slow_host) == pytest.approx(1.0, rel=1e-3)  # not 1 s + the device


@given(live=st.integers(1, 500), context=st.integers(1, 20_000))
def test_a_larger_batch_makes_a_longer_step_and_more_tokens(live: int, context: int) -> None:
    one = replica(MIXTURE, tensor=2)
    less, more = (step_seconds(load_at(one, n, n * context), SPEED) for n in (live, 2 * live))
    assert less < more < 2 * less


def test_eager_generation_is_bound_by_launches() -> None:
    # transformers generate on an A100 host: 25 ms for the 28 layers of a 7B, 57 ms for 64
    speed = decode_speed("ampere", "bf16", "vllm", mixture=False)
    a100 = replica("Qwen/Qwen2.5-7B-Instruct", gpu="a100-sxm4-80gb")
    assert decode_model(a100, speed, eager=True).step_s[1](1, 100) == pytest.approx(0.025, rel=0.05)


def test_one_measurement_moves_the_middle_and_narrows_the_band() -> None:
    model = decode_model(replica(), SPEED)
    refitted = model.rescaled(1.5, "measured")
    fast, middle, slow = (step(8, 8_000) for step in refitted.step_s)
    assert middle == pytest.approx(1.5 * model.step_s[1](8, 8_000))
    assert refitted.prefill_s(1_000, 1_000) == pytest.approx(1.5 * model.prefill_s(1_000, 1_000))
    assert slow / fast < model.step_s[2](8, 8_000) / model.step_s[0](8, 8_000)


# --- rates ---------------------------------------------------------------------------------------------------------


def test_prefill_is_paid_for_out_of_output() -> None:
    one = replica()
    rate = tokens_per_s(serving_at(one, concurrency=8, prompt=8_000, output=10), IDEAL)
    flops = 8_000 * (one.flops_per_token + one.attention_flops * 4_000)
    assert rate < 10 / (flops / 989.5e12)  # tokens of one request ÷ its prefill alone


def test_a_request_more_than_fits_is_a_wave_of_its_own() -> None:
    one = replica()
    fits = serving_of(one, requests=64, most=64, prompt=100, output=100)
    over = serving_of(one, requests=65, most=64, prompt=100, output=100)
    assert [count for count, _ in fits.waves] == [1]
    assert [(count, load.live) for count, load in over.waves] == [(1, 64), (1, 1)]
    assert tokens_per_s(over, IDEAL) < 0.7 * tokens_per_s(fits, IDEAL)


def test_what_the_weights_leave_decides_how_many_run() -> None:
    # 80 GiB-class card: (driver's figure − 3.5 GB − 16.06 GB of weights) × 0.9 ÷ (128 KiB × 2,048 tokens)
    room = H100.capacity_bytes[1] - 3.5e9 - 8_030_261_248 * 2
    assert concurrency_at_load(replica(), tokens=2048, most=4096) == pytest.approx(0.9 * room / (131_072 * 2048), abs=1)
    with pytest.raises(UnknownFact, match="no room"):
        concurrency_at_load(replica("meta-llama/Llama-3.1-70B"), tokens=2048, most=4096)


def test_the_fast_step_makes_the_high_rate() -> None:
    band = serving_rate(serving_at(replica(), concurrency=8, prompt=1000, output=1000), SPEED)
    assert band.p10 < band.p50 < band.p90


@pytest.mark.parametrize(
    ("architecture", "precision", "engine"),
    [("volta", "int4", "vllm"), ("hopper", "bf16", "lmdeploy"), ("rubin", "bf16", "vllm")],
)
def test_what_nobody_measured_is_refused(architecture: str, precision: str, engine: str) -> None:
    with pytest.raises(UnknownFact):
        decode_speed(architecture, precision, engine, mixture=False)


def test_what_nobody_measured_is_assumed_with_twice_the_band() -> None:
    measured = decode_speed("hopper", "fp8", "vllm", mixture=False).spread
    assert SPEED.spread == pytest.approx([edge**2 for edge in measured])
    assert "kernel tables" in SPEED.source
