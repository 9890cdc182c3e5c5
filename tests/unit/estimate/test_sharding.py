"""Do the FSDP2 laws give what was measured, and do buckets and gathers stay within the model?

8B in bf16 over 8 ranks, two tokens, PyTorch 2.13 on fake tensors: forward 5,075,174,432 bytes of which 17,440 are
activations; backward 6,533,387,560 of which 623,912; reduce in fp32 over fp32 shards 9,793,855,512 (24 over).
"""

from __future__ import annotations

from dataclasses import replace

import pytest
from memory_shapes import SHAPE_8B

from headcount.estimate import activations, logits, sharding
from headcount.estimate.activations import Pass
from headcount.estimate.model_state import Held
from headcount.estimate.parameters import parameters
from headcount.estimate.sharding import unsharded
from headcount.facts.models import find_model
from headcount.job.job import Kernels, MicroBatch
from headcount.job.layout import ContextExchange, Layout, Shard
from headcount.ledger.derivation import total

EIGHT = Layout(gpus=8, shard=Shard.FSDP2)
SIXTEEN_BIT = unsharded(SHAPE_8B, EIGHT, reduce_bytes=2, stored_bytes=2)


def test_forward_holds_three_blocks_or_two_roots() -> None:
    assert sharding.fsdp_forward(SIXTEEN_BIT).value == 5_075_174_432 - 17_440


def test_few_tokens_peak_in_the_reduce_of_layer_1() -> None:
    head = SHAPE_8B.vocab * SHAPE_8B.hidden * 2
    alive = sharding.fsdp_reduce(SIXTEEN_BIT).value + head + sharding.finished_gradients(SIXTEEN_BIT, layer=1).value
    assert alive == 6_532_763_648 == 6_533_387_560 - 623_912


def test_reduce_in_fp32_peaks_at_the_end() -> None:
    wide = unsharded(SHAPE_8B, EIGHT, reduce_bytes=4, stored_bytes=4)
    shards = 32 * wide.block * 4 / 8
    assert sharding.fsdp_end(wide).value + shards == 9_793_855_512 - 24


def test_splitting_the_root_halves_the_forward() -> None:
    # Measured 2.55 GB.
    split = unsharded(SHAPE_8B, replace(EIGHT, root_split=True))
    assert sharding.fsdp_forward(split).value < 0.6 * sharding.fsdp_forward(SIXTEEN_BIT).value


def test_without_reshard_all_layers_stay() -> None:
    stay = unsharded(SHAPE_8B, replace(EIGHT, reshard_after_forward=False))
    assert sharding.fsdp_forward(stay).value == 2 * (stay.root + 34 * stay.block)


def test_ddp_copies_gradients_into_buckets_unless_they_are_views() -> None:
    numbers = Held(10**9)
    copied = sharding.ddp_buckets(numbers, gradient_bytes=2).value
    views = sharding.ddp_buckets(numbers, gradient_bytes=2, views=True).value
    assert copied - views == 2e9
    assert views == 25 * 2**20


def test_deepspeed_default_buckets_are_9_gb() -> None:
    # https://huggingface.co/docs/transformers/deepspeed: overlap_comm with 5e8 needs 9 GB.
    big = sharding.zero_buckets(Layout(gpus=8, shard=Shard.ZERO2), numbers=Held(7 * 10**9))
    assert big.value == 9e9
    small = sharding.zero_buckets(Layout(gpus=8, shard=Shard.ZERO2), numbers=Held(10**6))
    assert small.value == 9 * 2e6


def test_zero_3_live_parameters_never_exceed_the_model() -> None:
    assert sharding.zero3_live_parameters(SHAPE_8B).value == 2.1e9
    small = replace(SHAPE_8B, blocks=((1, SHAPE_8B.block(0)),), vocab=100)
    assert sharding.zero3_live_parameters(small).value == parameters(small) * 2


@pytest.mark.parametrize(("every_rank", "copies"), [(False, 1), (True, 8)])
def test_loading_whole_costs_a_copy_per_rank(every_rank: bool, copies: int) -> None:
    got = sharding.host_load(SHAPE_8B, EIGHT, weight_bytes=2, every_rank=every_rank).value
    assert got == copies * parameters(SHAPE_8B) * 2


def test_loading_by_shard_costs_one_model_over_all_nodes() -> None:
    two_nodes = Layout(gpus=16, shard=Shard.FSDP2)
    per_node = sharding.host_load(SHAPE_8B, two_nodes, weight_bytes=2, every_rank=True, meta=True).value
    assert per_node * 2 == parameters(SHAPE_8B) * 2


def test_8b_with_4096_tokens_over_8_ranks() -> None:
    # Measured with checkpointing: logits 10.05 GB, block hump 7.37 GB; reduce in bf16.
    micro_batch = MicroBatch(sequences=1, row_tokens=4096, logit_tokens=4096)
    run = Pass(micro_batch=micro_batch, kernels=Kernels())
    kept = total(activations.trunk(SHAPE_8B, run=run))
    top = kept + activations.final_norm(SHAPE_8B, run).value + logits.peak_logits(SHAPE_8B, run=run).value
    assert (top + sharding.fsdp_logits(SIXTEEN_BIT).value) / 1e9 == pytest.approx(10.05, abs=0.005)
    head = logits.head_gradient(SHAPE_8B, run=run).value
    humps = [
        kept * (layer + 1) / 32
        + total(activations.live_block(SHAPE_8B.block(layer), hidden=4096, run=run))
        + sharding.fsdp_backward(SIXTEEN_BIT, layer=layer).value
        + sharding.finished_gradients(SIXTEEN_BIT, layer=layer).value
        + head
        for layer in range(32)
    ]
    assert max(humps) / 1e9 == pytest.approx(7.37, abs=0.01)


def test_expert_parallelism_divides_what_is_gathered() -> None:
    moe = find_model("Qwen/Qwen3-30B-A3B")
    whole, split = (unsharded(moe, replace(EIGHT, expert=expert)).block for expert in (1, 8))
    assert split < whole / 6


def test_all_gathered_context_costs_more_than_a_ring() -> None:
    micro_batch = MicroBatch(sequences=1, row_tokens=32768, logit_tokens=32768)
    run = Pass(micro_batch=micro_batch, kernels=Kernels(), context=8)
    bytes_of = {
        kind: activations.context_exchange(SHAPE_8B.block(0), run=run, exchange=kind).value for kind in ContextExchange
    }
    assert bytes_of[ContextExchange.ALL_GATHER] > 4 * bytes_of[ContextExchange.RING] > 0
    assert bytes_of[ContextExchange.ULYSSES] > 0


def test_sequence_parallelism_gathers_full_width_tensors() -> None:
    micro_batch = MicroBatch(sequences=1, row_tokens=1024, logit_tokens=1024)
    run = Pass(micro_batch=micro_batch, kernels=Kernels(), tensor=4, sequence_parallel=True)
    gathers = activations.sequence_parallel_gathers
    assert gathers(4096, run=run, tensors=3).value == 3 * 1024 * 4096 * 2
    assert gathers(4096, run=replace(run, sequence_parallel=False), tensors=3).value == 0
