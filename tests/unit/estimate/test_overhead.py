"""Do the four levels rise from active to device-used?"""

from __future__ import annotations

from headcount.estimate.overhead import levels, reserved_extra
from headcount.ledger.predicted import Band
from headcount.vocabulary import Level


def test_levels_rise() -> None:
    got = levels(allocated=Band(9, 10, 11), extra=Band.exactly(1), outside=Band(1, 2, 4))
    assert [got[level].p50 for level in Level] == [10, 10, 11, 13]
    assert got[Level.DEVICE_USED].p90 > 13


def test_a_freed_16_bit_segment_turns_12_bytes_into_14() -> None:
    extra = reserved_extra(activation_bytes=0, plain_logit_bytes=12e9, sharded=False)
    assert extra["logits segment"].value == 2e9
    assert (
        reserved_extra(activation_bytes=0, plain_logit_bytes=12e9, sharded=False, expandable=True)[
            "logits segment"
        ].value
        == 0
    )


def test_sharded_runs_fragment_more() -> None:
    one, many = (reserved_extra(activation_bytes=100, sharded=sharded)["fragments"].value for sharded in (False, True))
    assert one < many
