"""The table of fabrics: units, refusals, what hosts are sold with."""

from __future__ import annotations

import pytest

from headcount.errors import UnknownFact
from headcount.facts.gpu import gpus
from headcount.facts.link import fabrics, find_fabric, usual_fabric


@pytest.mark.parametrize(
    ("name", "gbit_per_s"),
    [("ndr-400", 400), ("hdr-200", 200), ("xdr-800", 800), ("efa-p4d", 50), ("ethernet-100", 12.5)],
)
def test_a_fabric_is_bytes_a_second_of_one_gpu_in_one_direction(name: str, gbit_per_s: float) -> None:
    assert find_fabric(name).bytes_per_s == pytest.approx(gbit_per_s * 1e9 / 8)


def test_every_fabric_has_a_source_a_date_and_a_latency() -> None:
    for fabric in fabrics().values():
        assert fabric.source
        assert fabric.date.startswith("20")
        assert 1e-6 <= fabric.latency_s <= 1e-4


def test_an_unknown_fabric_is_refused_with_what_is_near() -> None:
    with pytest.raises(UnknownFact, match="ndr-400"):
        find_fabric("ndr-40")


def test_every_card_s_architecture_has_a_usual_fabric_or_is_refused() -> None:
    with pytest.raises(UnknownFact, match="fabric = "):
        usual_fabric("abacus")
    assert {usual_fabric(gpu.architecture).id for gpu in gpus().values()} <= set(fabrics())
