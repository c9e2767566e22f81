"""The mix beside the offers of a file: by hand, and never worse than all or nothing."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpuyard.economics.offer_comparison import OfferComparison, compare_offers
from gpuyard.economics.offers import PricedOffer
from gpuyard.specs.offers import Offers

HOURS = 365.25 * 24


def comparison(own: dict[str, Any], rent: dict[str, Any], **more: Any) -> OfferComparison:
    document = {
        "name": "x",
        "horizon": "3 years",
        **more,
        "offers": [
            {"name": "own", "kind": "own", **own},
            {"name": "rent", "kind": "on-demand", **rent},
        ],
    }
    return compare_offers(Offers.model_validate(document))


def by_kind(found: OfferComparison) -> dict[str, PricedOffer]:
    return {offer.kind: offer for offer in found.priced}


def test_by_hand() -> None:
    # working hours are 45 of 168 with all and a tenth of it else: the mean is (45 + 123 / 10) / 168 of the
    # peak. 4,000 hours a year then want 1.338 machines at the peak and 0.1338 else
    found = by_kind(
        comparison(
            {"hardware": "$6000"}, {"price": "$1/h"}, hours_per_year=4000, load="working-hours"
        )
    )
    mean = (45 + 12.3) / 168
    peak = 4000 / HOURS / mean
    assert peak == pytest.approx(1.338, abs=0.001)
    # the second machine would be wanted 45 of 168 hours, by a third: it costs more than it saves
    mix = found["hybrid"]
    rented_hours = 3 * HOURS * 45 / 168 * (peak - 1)
    assert mix.machines == 1
    assert mix.total_usd == pytest.approx(6000 + rented_hours * 1.0)
    assert found["own"].machines == 2
    assert found["own"].total_usd == pytest.approx(12_000)
    assert found["on-demand"].total_usd == pytest.approx(12_000)
    assert mix.name == "own 1 × own; rent the rest: rent"
    assert mix.owned_share == pytest.approx(1 - rented_hours / 12_000)


def test_a_steady_load_is_owned_or_rented_whole() -> None:
    """A mix that owns all or nothing is omitted, because the plain offer is already listed."""
    owned = comparison({"hardware": "$6000"}, {"price": "$1/h"}, hours_per_year=4000)
    assert [(one.kind, round(one.total_usd)) for one in owned.priced] == [
        ("own", 6000),
        ("on-demand", 12_000),
    ]
    assert "owns" in owned.mix_note and owned.mix_note.endswith("(own).")
    rented = comparison({"hardware": "$60000"}, {"price": "$1/h"}, hours_per_year=4000)
    assert [(one.kind, round(one.total_usd)) for one in rented.priced] == [
        ("on-demand", 12_000),
        ("own", 60_000),
    ]
    assert "rents" in rented.mix_note and rented.mix_note.endswith("(rent).")


def test_where_nothing_can_be_mixed_no_mix_is_spoken_of() -> None:
    own = {"name": "own", "kind": "own", "hardware": "$6000"}
    found = compare_offers(
        Offers.model_validate({"name": "x", "hours_per_year": 4000, "offers": [own]})
    )
    assert [one.kind for one in found.priced] == ["own"] and not found.mix_note


@settings(max_examples=60)
@given(
    hardware=st.integers(0, 60_000),
    price=st.floats(0.1, 9),
    hours=st.floats(10, 8766),
    speed=st.floats(1, 3),
    load=st.sampled_from(["steady", "working-hours", "spiky"]),
    data=st.integers(0, 50),
    rate=st.sampled_from(["0%", "8%"]),
)
def test_never_worse_than_all_or_nothing(
    hardware: int, price: float, hours: float, speed: float, load: str, data: int, rate: str
) -> None:
    both = comparison(
        {"hardware": hardware, "power": "2 kW", "electricity": "$0.1/kWh", "speed": speed},
        {
            "price": f"${price:.3f}/h",
            "storage": {"size": f"{data} TB", "price_per_gb_month": "$0.023"},
        },
        hours_per_year=hours,
        load=load,
        discount_rate=rate,
    )
    found = by_kind(both)
    assert bool(both.mix_note) == ("hybrid" not in found)
    if both.mix_note:
        kind = "own" if "owns enough" in both.mix_note else "on-demand"
        assert both.priced[0].present_value_usd == pytest.approx(
            found[kind].present_value_usd, abs=1e-6
        )
        return
    assert found["hybrid"].machines > 0 and found["hybrid"].owned_share < 1
    best = min(found["own"].present_value_usd, found["on-demand"].present_value_usd)
    assert found["hybrid"].present_value_usd <= best * (1 + 1e-9) + 1e-6
