"""Seconds a byte between GPUs against closed forms, inside a host and across hosts."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headcount.estimate.communication import exchange, hand_on, link_gpus, link_rate, ring
from headcount.facts.gpu import find_gpu
from headcount.facts.link import find_fabric

H100, GB200, L40S = find_gpu("h100-sxm5-80gb"), find_gpu("gb200"), find_gpu("l40s")
NDR = find_fabric("ndr-400")  # 50 GB/s a GPU
LINK = 450e9  # NVLink 4, one direction


def test_alone_there_is_nobody_to_talk_to() -> None:
    assert ring(H100, NDR, ranks=1) == 0
    assert exchange(H100, NDR, ranks=1, copies=8) == (0, 0)


def test_a_ring_of_a_host_runs_on_its_link() -> None:
    assert ring(H100, NDR, ranks=8) == pytest.approx(7 / 8 / LINK)


def test_a_ring_over_hosts_uses_all_their_ports() -> None:
    assert ring(H100, NDR, ranks=64) == pytest.approx(63 / 64 / (8 * 50e9))


def test_ranks_that_stand_apart_leave_fewer_ports_to_a_ring() -> None:
    assert ring(H100, NDR, ranks=8, beside=8) == pytest.approx(7 / 8 / 50e9)
    assert ring(H100, NDR, ranks=8, beside=4) == pytest.approx(7 / 8 / 100e9)


def test_a_rack_of_nvl72_is_one_link_for_64() -> None:
    assert link_gpus(GB200) == 72
    assert ring(GB200, NDR, ranks=64) == pytest.approx(63 / 64 / 900e9)


def test_a_card_without_a_link_talks_through_its_slot() -> None:
    assert link_rate(L40S, NDR) == L40S.pcie_bytes_per_s


def test_a_stage_hands_on_inside_a_host_or_through_the_fabric() -> None:
    assert hand_on(H100, NDR, ranks=8) == pytest.approx(1 / LINK)
    assert hand_on(H100, NDR, ranks=16) == pytest.approx(1 / 50e9)


def test_experts_on_one_host_exchange_over_its_link() -> None:
    near, far = exchange(H100, NDR, ranks=8, copies=4)
    assert near == pytest.approx(7 / 8 / LINK)
    assert far == 0


def test_a_token_crosses_the_fabric_once_for_each_host_it_visits() -> None:
    _, far = exchange(H100, NDR, ranks=64, copies=8)
    visited = 8 * (1 - (7 / 8) ** 8)  # of 8 hosts, one of them its own
    assert far * 8 == pytest.approx(visited * 7 / 8 / 50e9)


def test_one_copy_leaves_as_often_as_its_expert_is_elsewhere() -> None:
    _, far = exchange(H100, NDR, ranks=16, copies=1)
    assert far == pytest.approx(1 / 2 / 50e9)


@given(st.sampled_from([1, 2, 4, 8, 16, 32, 64]), st.integers(1, 16))
def test_copies_never_cross_more_often_than_they_are(ranks: int, copies: int) -> None:
    near, far = exchange(H100, NDR, ranks=ranks, copies=copies)
    assert near >= 0
    assert far * copies <= copies * (1 - 1 / max(1, ranks / 8)) / 50e9 + 1e-18
