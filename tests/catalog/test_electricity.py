"""Prices of electricity by country, and which one an answer uses."""

import datetime

import pytest

from gpuyard.catalog.electricity import DEFAULT_COUNTRY, electricity_prices, select_tariff
from gpuyard.catalog.specfiles import known_names
from gpuyard.facilities.site_rules import resolve_site_rules
from gpuyard.specs.site import Site

OFFICE = {
    "name": "an office",
    "kind": "office",
    "circuits": [{"voltage": "230 V", "amps": "16 A", "receptacle": "cee-7-7"}],
}


def test_prices_are_of_businesses_and_dated() -> None:
    assert len(electricity_prices()) > 50
    for row in electricity_prices():
        assert 0.01 < row.usd_per_kwh < 0.5, row.id
        assert datetime.date(2025, 1, 1) <= row.date <= datetime.date(2027, 1, 1), row.id
        assert row.source and row.period and row.name, row.id
        country = row.id.split("-")[0]
        assert country in electricity_prices(), row.id


def test_euros_become_dollars_at_the_rate_that_the_note_names() -> None:
    for row in electricity_prices():
        if "EUR" in row.note:
            words = row.note.split()
            assert row.usd_per_kwh == pytest.approx(float(words[0]) * float(words[5]), abs=1e-4)


def test_a_given_price_is_taken_as_it_is() -> None:
    tariff = select_tariff(0.2, "DE", "nothing")
    assert (tariff.usd_per_kwh, tariff.place, tariff.is_default) == (0.2, None, False)
    assert tariff.sentence == "Electricity: $0.2/kWh, as given."


def test_a_country_has_its_own_price_with_date_and_source() -> None:
    tariff = select_tariff(None, "DE", "nothing")
    assert (tariff.usd_per_kwh, tariff.place, tariff.date) == (0.2571, "DE", "2025-12-31")
    assert not tariff.is_default
    assert "Germany" in tariff.sentence and "Eurostat" in tariff.sentence
    assert "second half of 2025" in tariff.sentence


@pytest.mark.parametrize(
    ("place", "why"), [(None, "no country is given"), ("AQ", "no price is known for AQ")]
)
def test_a_default_says_that_it_is_one(place: str | None, why: str) -> None:
    tariff = select_tariff(None, place, "'site.country'")
    assert tariff.is_default
    assert tariff.place == DEFAULT_COUNTRY
    assert f"the default, as {why} (give 'site.country')" in tariff.sentence


def test_a_site_pays_the_price_of_its_country_and_not_that_of_illinois() -> None:
    french = resolve_site_rules(Site.model_validate(OFFICE | {"country": "FR"}))
    assert french.tariff.place == "FR"
    assert not any("kWh" in line for line in french.assumptions)
    assert resolve_site_rules(Site.model_validate(OFFICE)).tariff.is_default
    in_new_york = Site.model_validate(OFFICE | {"country": "US", "region": "US-NY"})
    assert resolve_site_rules(in_new_york).tariff.usd_per_kwh == 0.1914
    assert resolve_site_rules(in_new_york, "IN").tariff.place == "IN"


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"country": "DE", "region": "US-IL"}, "region US-IL is not in country DE"),
        ({"country": "US", "region": "US-XX"}, "no region is called 'US-XX'"),
    ],
)
def test_a_region_has_a_price_and_is_in_its_country(given: dict[str, str], why: str) -> None:
    with pytest.raises(ValueError, match=why):
        Site.model_validate(OFFICE | given, context=known_names())
