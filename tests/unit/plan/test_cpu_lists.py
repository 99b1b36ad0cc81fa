import pytest
from hypothesis import given
from hypothesis import strategies as st

from ktfleet.plan.cpu_lists import mask, parse, ranges


@pytest.mark.parametrize(("cpus", "text"), [
    ((), ""), ((3,), "3"), ((0, 1, 2), "0-2"), ((0, 2, 4), "0,2,4"), ((5, 0, 1, 7, 6), "0-1,5-7"),
])  # fmt: skip
def test_ranges(cpus: tuple[int, ...], text: str) -> None:
    assert ranges(cpus) == text


@given(st.sets(st.integers(0, 300)))
def test_a_list_reads_back(cpus: set[int]) -> None:
    assert set(parse(ranges(cpus))) == cpus


@pytest.mark.parametrize("text", ["", "x", "1-", "-1", "1,,2", "1 2", "9" * 30])
def test_what_is_no_list_is_no_cpu(text: str) -> None:
    assert parse(text) == ()


@pytest.mark.parametrize(("cpus", "bits", "text"), [
    ({4, 5, 6, 7}, 8, "f0"), (set(), 8, "00"), ({0}, 1, "1"), ({32}, 33, "1,00000000"),
    ({0, 79}, 80, "8000,00000000,00000001"),
    (set(range(40, 80)), 80, "ffff,ffffff00,00000000"), (set(range(32)), 32, "ffffffff"), ({1}, 6, "02"),
])  # fmt: skip
def test_a_mask_is_written_as_the_kernel_does(cpus: set[int], bits: int, text: str) -> None:
    assert mask(cpus, bits) == text


@given(st.sets(st.integers(0, 200)), st.integers(201, 300))
def test_a_mask_holds_exactly_its_cpus(cpus: set[int], bits: int) -> None:
    value = int(mask(cpus, bits).replace(",", ""), 16)
    assert {cpu for cpu in range(bits) if value >> cpu & 1} == cpus
