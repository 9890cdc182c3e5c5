"""What does a decode step hold beside the cache?"""

from __future__ import annotations

import pytest
from memory_shapes import SHAPE_8B

from headcount.estimate.kv_cache import cache_growth, decode_step, kv_cache


@pytest.mark.parametrize(("sampler", "each"), [("greedy", 10), ("sampling", 14), ("top-k", 19)])
def test_a_step_holds_last_and_new_logits(sampler: str, each: int) -> None:
    assert decode_step(SHAPE_8B, sequences=4, sampler=sampler).value == each * 4 * 128256


def test_a_growing_cache_copies_the_keys_of_one_layer_not_the_whole_cache() -> None:
    whole = kv_cache(SHAPE_8B, sequences=4, tokens=1024).value
    assert cache_growth(SHAPE_8B, sequences=4, tokens=1024).value == whole / (2 * 32)


def test_stages_share_the_cache() -> None:
    assert (
        kv_cache(SHAPE_8B, sequences=1, tokens=8, pipeline=4).value * 4
        == kv_cache(SHAPE_8B, sequences=1, tokens=8).value
    )
