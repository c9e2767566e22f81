"""Offers side by side: every kind by hand, and what makes no sense."""

from typing import Any

import pytest

from gpuyard.catalog import prices
from gpuyard.economics.offers import PricedOffer, electricity_price, owned_hardware, price_offers
from gpuyard.errors import UserMistake
from gpuyard.specs.offers import Offers, OwnedOffer

YEAR_HOURS = 365.25 * 24


def priced(offer: dict[str, Any], **more: Any) -> PricedOffer:
    document = {"name": "x", "hours_per_year": 2000, "horizon": "3 years", **more}
    return price_offers(Offers.model_validate({**document, "offers": [{"name": "it", **offer}]}))[0]


def test_on_demand_by_hand() -> None:
    found = priced({"kind": "on-demand", "price": "$1.50/h"})
    assert found.total_usd == pytest.approx(9000)
    assert found.usd_per_hour_of_work == pytest.approx(1.5)
    assert found.cash_by_month[0] == 0
    assert found.cash_by_month[36] == pytest.approx(250)
    # runs of 1.5 h billed by the hour are 2 h each
    by_hour = priced({"kind": "on-demand", "price": "$1.50/h", "increment": "hour"}, run="1.5 h")
    assert by_hour.total_usd == pytest.approx(12_000)
    assert by_hour.usd_per_run == pytest.approx(3.0)
    committed = {"committed_hours_per_year": 1000, "discount": "40%"}
    found = priced({"kind": "on-demand", "price": "$1.50/h", **committed})
    assert found.total_usd == pytest.approx(3 * 1.5 * (600 + 1000))


def test_twice_as_fast_is_half_the_hours() -> None:
    assert priced({"kind": "on-demand", "price": "$3/h", "speed": 2}).total_usd == pytest.approx(
        priced({"kind": "on-demand", "price": "$1.50/h"}).total_usd
    )


def test_storage_and_egress_come_every_month() -> None:
    data = {
        "storage": {"size": "2 TB", "price_per_gb_month": "$0.02"},
        "egress": {"size_per_month": "600 GB", "price_per_gb": "$0.09", "free_per_month": "100 GB"},
    }
    more = priced({"kind": "on-demand", "price": "$1.50/h", **data})
    assert more.total_usd == pytest.approx(9000 + 36 * (40 + 45))


def test_reserved_by_hand() -> None:
    found = priced({"kind": "reserved", "price_per_year": "$160308", "upfront": "100%"})
    assert found.total_usd == pytest.approx(480_924)
    assert found.cash_by_month[0] == found.cash_by_month[12] == pytest.approx(160_308)
    with pytest.raises(UserMistake, match=r"it: reserved terms of 3 years .*'pay'.*'rest'"):
        priced({"kind": "reserved", "price_per_year": "$1", "term": "3 years"}, horizon="1 year")
    kept = {"kind": "reserved", "price_per_year": "$1000", "term": "3 years", "rest": "pay"}
    assert priced(kept, horizon="1 year").total_usd == pytest.approx(3000)


def test_spot_does_lost_work_again() -> None:
    calm = {"kind": "spot", "price": "$1/h", "interruptions_per_hour": 0}
    assert priced(calm).total_usd == pytest.approx(6000)
    found = priced(
        {**calm, "interruptions_per_hour": 0.05, "checkpoint": "2 min", "restart": "10 min"}
    )
    # Young's estimate of the overhead: 2 × sqrt(checkpoint × rate / 2), and a restart each
    overhead = 2 * (2 / 60 * 0.05 / 2) ** 0.5 + 0.05 * 10 / 60
    assert found.total_usd == pytest.approx(6000 * (1 + overhead), rel=0.005)
    assert found.machine_hours_per_year > 2000
    several = priced({**calm, "interruptions_per_hour": 0.05, "count": 8, "price": "$0.125/h"})
    assert several.total_usd > found.total_usd  # eight can be taken away, not one


def test_owning_by_hand() -> None:
    found = priced(
        {
            "kind": "own", "hardware": "$10000", "power": "2 kW", "idle_power": "500 W",
            "electricity": "$0.10/kWh", "pue": 1.5, "colocation": "$100/kW/month",
            "support_per_year": "6%", "value_kept_per_year": "50%",
        }
    )  # fmt: skip
    busy = 2000 / YEAR_HOURS
    power = (2 * busy + 0.5 * (1 - busy)) * 1.5 * YEAR_HOURS * 0.10
    assert found.total_usd == pytest.approx(10_000 + 3 * (power + 2400 + 600) - 1250)
    assert sum(found.cash_by_month) == pytest.approx(found.total_usd)


def test_catalog_prices_bring_their_date() -> None:
    listed = prices().get("aws/p4d.24xlarge")
    found = priced({"kind": "on-demand", "instance": "aws/p4d.24xlarge"})
    assert found.price_date == listed.date
    assert found.usd_per_hour_of_work == pytest.approx(listed.usd_per_hour)
    spot = priced({"kind": "spot", "instance": "aws/p4d.24xlarge", "interruptions_per_hour": 0})
    assert spot.usd_per_hour_of_work == pytest.approx(listed.spot_usd_per_hour)
    year = priced({"kind": "reserved", "instance": "aws/p4d.24xlarge", "discount": "40%"})
    assert year.total_usd == pytest.approx(0.6 * listed.usd_per_hour * YEAR_HOURS * 3)


def test_the_cheapest_comes_first_and_money_later_is_worth_less() -> None:
    offers = Offers.model_validate(
        {
            "name": "x",
            "discount_rate": "10%",
            "offers": [
                {"name": "dear", "kind": "on-demand", "price": "$2/h"},
                {"name": "cheap", "kind": "on-demand", "price": "$1/h"},
            ],
        }
    )
    found = price_offers(offers)
    assert [one.name for one in found] == ["cheap", "dear"]
    assert found[0].present_value_usd < found[0].total_usd


@pytest.mark.parametrize(
    ("offer", "more", "sentence"),
    [
        ({"kind": "own", "hardware": "$1", "speed": 0.1}, {}, "20,000 hours.*8,766"),
        (
            {"kind": "spot", "price": "$1/h", "interruptions_per_hour": 30},
            {},
            "30 interruptions",
        ),
        ({"kind": "own", "hardware": "$1"}, {"horizon": "1 day"}, "1 month to 50 years"),
        ({"kind": "own", "hardware": "$1", "idle_power": "1 W"}, {}, "idle power"),
        (
            {"kind": "reserved", "price_per_year": "$1", "term": "1 day", "rest": "pay"},
            {},
            "it: .*whole months.*0.033",
        ),
        (
            {"kind": "reserved", "price_per_year": "$1", "term": "45 days", "rest": "pay"},
            {},
            "whole months, got 1.5",
        ),
    ],
)
def test_nonsense_is_a_sentence(offer: dict[str, Any], more: dict[str, Any], sentence: str) -> None:
    with pytest.raises(UserMistake, match=sentence):
        priced(offer, **more)


def test_electricity_is_given_of_a_country_or_not_counted() -> None:
    own = {"name": "ours", "kind": "own", "hardware": "$8000"}
    drawn = own | {"power": "1 kW"}
    german, words = electricity_price(OwnedOffer.model_validate(drawn | {"country": "DE"}))
    assert german == pytest.approx(0.2571) and "Germany" in words
    given = OwnedOffer.model_validate(drawn | {"country": "DE", "electricity": "$0.10/kWh"})
    assert electricity_price(given)[0] == pytest.approx(0.10)
    assert owned_hardware(given, 1.0).usd_per_kwh == pytest.approx(0.10)
    for offer, asked in ((own, "'power'"), (drawn, "'electricity' or 'country'")):
        nothing, words = electricity_price(OwnedOffer.model_validate(offer))
        assert (nothing, words) == (0.0, f"Electricity is not counted: give {asked}.")
