"""A purchase price may be a quote, a range, or the catalog's estimate, and the answer says which."""

import datetime

import pytest

from gpuyard.catalog.prices import chassis, gpu_prices
from gpuyard.economics.offer_comparison import compare_offers
from gpuyard.economics.purchase import parse_purchase
from gpuyard.errors import UserMistake
from gpuyard.specs.offers import Offers

TODAY = datetime.date(2026, 11, 18)
BUILD = "server-sxm5/8x-h100-sxm5-80gb"


def test_a_quote_rests_on_nothing_else() -> None:
    quote = parse_purchase("$8000")
    assert (quote.usd, quote.usd_low, quote.usd_high) == (8000, 8000, 8000)
    assert not quote.describe_basis(TODAY)


def test_a_range_has_its_middle() -> None:
    given = parse_purchase("$7000..$9000")
    assert (given.usd_low, given.usd, given.usd_high) == (7000, 8000, 9000)


def test_a_build_adds_up_its_parts() -> None:
    built, box, gpu = (
        parse_purchase(BUILD), chassis().get("server-sxm5"), gpu_prices().get("h100-sxm5-80gb")
    )  # fmt: skip
    assert built.usd == box.usd + 8 * gpu.usd
    assert (built.usd_low, built.usd_high) == (
        box.usd_low + 8 * gpu.usd_low,
        box.usd_high + 8 * gpu.usd_high,
    )
    assert built.date == min(box.date, gpu.date)
    assert "estimated" in built.describe_basis(TODAY)


def test_an_old_list_price_says_its_age() -> None:
    assert "older" in parse_purchase("dgx-1-v100").describe_basis(TODAY)


@pytest.mark.parametrize("text", ["9 apples", "$9..$3", "server-sxm/8x-h100", "dgx-h100"])
def test_other_texts_are_refused(text: str) -> None:
    with pytest.raises(UserMistake):
        parse_purchase(text)


def _offers(*offers: dict[str, object]) -> Offers:
    return Offers.model_validate({"name": "x", "hours_per_year": 6000, "offers": offers})


def test_the_range_of_a_price_is_in_the_total() -> None:
    own = {"name": "own", "kind": "own", "hardware": "$100"}
    (priced,) = compare_offers(_offers({**own, "hardware_range": ["$80", "$130"]})).priced
    assert priced.total_usd_range == (80, 130)
    assert priced.price_basis
    (plain,) = compare_offers(_offers({"name": "own", "kind": "own", "hardware": "$100"})).priced
    assert plain.total_usd_range is None and not plain.price_basis


def test_a_machine_of_the_catalog_prices_an_offer() -> None:
    (priced,) = compare_offers(_offers({"name": "own", "kind": "own", "machine": BUILD})).priced
    built = parse_purchase(BUILD)
    assert priced.total_usd == built.usd
    assert priced.total_usd_range == (built.usd_low, built.usd_high)
    assert priced.price_date == built.date


@pytest.mark.parametrize(
    "keys",
    [{}, {"hardware": "$5", "machine": BUILD}, {"hardware": "$5", "hardware_range": ["$6", "$7"]}],
)
def test_an_offer_needs_one_price_inside_its_range(keys: dict[str, object]) -> None:
    with pytest.raises(ValueError, match="hardware"):
        _offers({"name": "own", "kind": "own", **keys})
