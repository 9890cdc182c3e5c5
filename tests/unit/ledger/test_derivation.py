"""The printed formula is the arithmetic."""

from hypothesis import given
from hypothesis import strategies as st

from headcount.ledger.derivation import derive
from headcount.ledger.predicted import Band


def test_formula_is_evaluated_and_filled_in():
    got = derive("2 × layers × kv_width × ⌈tokens ÷ block⌉", layers=32, kv_width=1024, tokens=33, block=16)
    assert got.bytes == 2 * 32 * 1024 * 3
    assert got.numbers == "2 × 32 × 1,024 × ⌈33 ÷ 16⌉"


def test_a_part_of_a_byte_is_a_byte_but_rounding_noise_is_not():
    assert derive("parameters × bits ÷ 8", parameters=3, bits=4).bytes == 2
    assert derive("a × b", a=0.1, b=30).bytes == 3  # 3.0000000000000004 in floating point


@given(st.integers(1, 10**13), st.integers(1, 4096))
def test_whole_products_stay_exact(parameters, ranks):
    # 10¹³ × 4096 < 2⁵³ × 10: integers must not pass through floating point
    assert derive("parameters × ranks", parameters=parameters, ranks=ranks).value == parameters * ranks


def test_independent_bands_add_in_quadrature():
    got = Band(7, 10, 13) + Band(16, 20, 24)
    assert (got.p10, got.p50, got.p90) == (25, 30, 35)
