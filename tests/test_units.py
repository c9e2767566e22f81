"""Quantities are parsed and formatted as people write them."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from gpuyard import units
from gpuyard.errors import BadQuantity


@pytest.mark.parametrize(
    ("text", "size_bytes"),
    [
        ("46 MB", 46e6),
        ("48 kB", 48e3),
        ("1 GiB", 2**30),
        ("1,500 B", 1500),
        (48000, 48000),
        ("2e3 B", 2000),
    ],
)
def test_sizes(text: str | float, size_bytes: float) -> None:
    assert units.parse_bytes(text) == pytest.approx(size_bytes)


@pytest.mark.parametrize(
    ("text", "bytes_per_second"),
    [("10 Gbit/s", 1.25e9), ("1Gbit/s", 1.25e8), ("30 GB/s", 30e9), ("100 Mbps", 12.5e6)],
)
def test_rates(text: str, bytes_per_second: float) -> None:
    assert units.parse_rate(text) == pytest.approx(bytes_per_second)


@pytest.mark.parametrize(
    ("text", "seconds"), [("30 us", 30e-6), ("2 weeks", 1209600), ("1.5 h", 5400), ("3 s", 3)]
)
def test_durations(text: str, seconds: float) -> None:
    assert units.parse_seconds(text) == pytest.approx(seconds)


@pytest.mark.parametrize(
    ("text", "usd"), [("$8,000", 8000), ("8000", 8000), ("USD 1.5k", 1500), (109008, 109008)]
)
def test_money(text: str | float, usd: float) -> None:
    assert units.parse_usd(text) == usd


@pytest.mark.parametrize("text", ["$1.50/h", "1.50 per hour", "$1.5/hour"])
def test_hourly_prices(text: str) -> None:
    assert units.parse_usd_per_hour(text) == 1.5


@pytest.mark.parametrize(
    ("parse", "text", "message"),
    [
        (units.parse_rate, "10", "has no unit; write a rate like '10 Gbit/s'"),
        (units.parse_rate, "10 GBit/s", "did you mean 'Gbit/s'?"),
        (units.parse_rate, "10 MB", "is not a unit of a rate"),
        (units.parse_bytes, "-3 MB", "must be zero or more"),
        (units.parse_rate, "0 Gbit/s", "must be above zero"),
        (units.parse_rate, "10,5 Gbit/s", "is not a rate"),
        (units.parse_usd_per_hour, "$1,50/h", "write it like '$1.50/h'"),
        (units.parse_bytes, "1e999 MB", "and finite"),
        (units.parse_bytes, "lots", "is not a size"),
        (units.parse_seconds, "inf s", "is not a duration"),
        (units.parse_seconds, "soon", "write it like '2h'"),
        (units.parse_short_duration, "soon", "write it like '30 us'"),
        (units.parse_usd_per_hour, "$1.50", "write it like '$1.50/h'"),
        (units.parse_usd, "$-5", "is not a price"),
        (units.parse_share, "130%", "between 0% and 100%"),
    ],
)
def test_mistakes_name_the_allowed_form(parse: object, text: str, message: str) -> None:
    assert callable(parse)
    with pytest.raises(BadQuantity) as mistake:
        parse(text)
    assert message in str(mistake.value)


@given(st.floats(min_value=1, max_value=1e14))
def test_formatted_quantities_parse_to_the_same_value(size_bytes: float) -> None:
    assert units.parse_bytes(units.format_bytes(size_bytes)) == pytest.approx(size_bytes, rel=0.006)
    assert units.parse_rate(units.format_bit_rate(size_bytes)) == pytest.approx(
        size_bytes, rel=0.006
    )


@example(",")
@example("$,/h")
@given(st.text(max_size=30))
def test_any_text_parses_or_is_a_mistake(text: str) -> None:
    for parse in (units.parse_bytes, units.parse_rate, units.parse_seconds, units.parse_usd):
        try:
            assert parse(text) >= 0
        except BadQuantity as mistake:
            assert str(mistake)


def test_figures_and_intervals_keep_enough_digits() -> None:
    assert units.format_per_second(0.397) == "0.397"
    assert units.format_per_second(1153.71) == "1,153.7"
    assert units.format_interval(0.5512, 0.8209) == "0.551 – 0.821"
    assert units.format_interval(748.3, 1574.2) == "748 – 1,574"
    assert units.format_number(7.0) == "7"
    assert units.format_rough_usd(66378) == "$66,000"
    assert (units.format_count(1, "worker"), units.format_count(1024, "worker")) == (
        "1 worker",
        "1,024 workers",
    )


def test_one_day_is_singular() -> None:
    assert [units.format_seconds(days * 86_400) for days in (1, 1.0001, 2)] == [
        "1 day", "1 day", "2 days",
    ]  # fmt: skip
