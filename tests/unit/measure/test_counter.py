"""Which level a counter reads, and in which unit."""

import pytest

from headcount.measure.mapping.counter import level_of, observation_of
from headcount.measure.mapping.evidence import cases_of
from headcount.vocabulary import Level


@pytest.mark.parametrize(
    ("counter", "recipe", "level"),
    [
        ("torch max_memory_allocated", "hf-trainer", Level.ALLOCATED),
        ("torch max_memory_allocated or reserved (not stated)", "litgpt", Level.ALLOCATED),
        ("torchtune peak memory active", "torchtune", Level.ACTIVE),
        ("device_mem_reserved", "axolotl", Level.RESERVED),
        ("nvidia-smi", "trl", Level.DEVICE_USED),
        ("max allocated; reserved 27166 MiB", "trl", Level.ALLOCATED),
        ("torchtitan log line", "torchtitan", Level.RESERVED),
        ("trainer peak per GPU", "prime-rl", Level.RESERVED),
        ("", "trl", Level.RESERVED),
    ],
)
def test_level(counter, recipe, level):
    assert level_of(counter, recipe=recipe)[0] is level


def _observed(**measured):
    (case,) = cases_of({"id": "x", "measured": measured})
    return observation_of(case, recipe="trl", gpus=2)


def test_gib_and_gb_differ():
    gib, gb = _observed(peak_gb_per_gpu=10, unit="GiB"), _observed(peak_gb_per_gpu=10, unit="GB")
    assert gib is not None
    assert gb is not None
    assert (gib.bytes, gb.bytes) == (10 * 2**30, 10**10)


def test_a_total_is_divided_by_the_gpus():
    seen = _observed(peak_gb_total=139.2, unit="GiB")
    assert seen is not None
    assert seen.bytes == pytest.approx(69.6 * 2**30)


def test_a_figure_without_a_unit_is_refused():
    assert _observed(peak_gb_per_gpu=10, unit=None) is None


def test_an_unclear_unit_never_counts_as_named():
    seen = _observed(peak_gb_per_gpu=10, unit="unclear", memory_counter="torch max_memory_allocated")
    assert seen is not None
    assert not seen.named
