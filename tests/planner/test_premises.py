"""A site file in a plan: its tariff, PUE, room and limits, and colocation beside it."""

from pathlib import Path

import pytest

from gpuyard.catalog import models
from gpuyard.catalog.specfiles import read_site
from gpuyard.errors import SpecError
from gpuyard.planner import make_plan
from gpuyard.planner.costs import create_premises
from gpuyard.planner.recommendation import build_result
from gpuyard.planner.result import PlanResult
from gpuyard.planner.search import search
from gpuyard.specs.plan import Plan
from gpuyard.specs.site import Site
from tests.planner.builder import offer, plan, workload

EXAMPLES = Path(__file__).parents[2] / "examples"
ROOM = EXAMPLES / "machine-room.site.yaml"


def solve(spec: Plan, site: Site) -> PlanResult:
    trained = workload()
    premises = create_premises(spec, site)
    return build_result(search(spec, trained, models().get("resnet50"), None, premises), trained)


def owning(*ways: str, power: str = "1 kW", runs: int = 10) -> Plan:
    return plan(
        offer("a", buy="$7200", power=power), owning={"staff": "$0/h"}, runs_per_month=runs,
        search={"ways": list(ways)},
    )  # fmt: skip


def test_a_room_by_hand() -> None:
    # PUE 1.58 is assumed, $0.1278/kWh and $11,000 a kW are the file's; ten years of the room, three here
    result = solve(owning("buy"), read_site(ROOM))
    assert result.winner is not None
    energy = 360 * 10 * 1.58 * 0.1278
    assert result.winner.total_usd == pytest.approx(7200 + energy + 11_000 * 3 / 10)
    assert result.winner.watts == pytest.approx(1580)
    here, away = result.places
    assert (here.way, away.way) == ("buy", "colocate")
    assert here.total_usd == pytest.approx(result.winner.total_usd)
    assert here.build_usd_per_month == pytest.approx(11_000 / 120)
    assert here.energy_usd_per_month == pytest.approx(energy / 36)
    # somebody else's new building at 1.3, and $184.06 for a kW and month
    assert away.rent_usd_per_month == pytest.approx(184.06)
    assert away.total_usd == pytest.approx(7200 + 360 * 10 * 1.3 * 0.1278 + 36 * 184.06)
    assert away.usd_per_run == pytest.approx(away.total_usd / 360)
    assert any("Small machine room" in words for words in result.assumptions)


def test_the_room_holds_so_much() -> None:
    # one rack of 17 kW, though a feed of 208 V, 60 A has √3 × 208 × 60 × 0.8 × 0.98 = 16.9 kW
    limit = create_premises(owning("buy"), read_site(ROOM)).power
    assert limit is not None
    assert limit.watts == pytest.approx(3**0.5 * 208 * 60 * 0.8 * 0.98)
    result = solve(owning("buy", power="6 kW", runs=200), read_site(ROOM))
    assert result.winner is None
    assert "draws more than the 16.9 kW that the circuits of Small machine room" in result.verdict
    result = solve(owning("buy", power="17.5 kW"), read_site(ROOM))
    assert "a machine draws more than the 17 kW of a rack there" in result.verdict


def test_a_colocation_by_hand() -> None:
    result = solve(owning("buy", "colocate"), read_site(EXAMPLES / "colocation.site.yaml"))
    away = next(place for place in result.places if place.way == "colocate")
    assert away.total_usd == pytest.approx(7200 + 360 * 10 * 1.3 * 0.15 + 36 * 184)
    here = next(place for place in result.places if place.way == "buy")
    assert here.pue == 1.58


def test_a_plan_names_its_site(tmp_path: Path) -> None:
    (tmp_path / "room.site.yaml").write_text(ROOM.read_text(encoding="utf-8"), encoding="utf-8")
    spec = owning("buy").model_copy(update={"site": "room.site.yaml"})
    named = make_plan(spec, tmp_path)
    assert named.winner == solve(owning("buy"), read_site(ROOM)).winner
    with pytest.raises(SpecError, match="not found"):
        make_plan(spec.model_copy(update={"site": "none.site.yaml"}), tmp_path)


def test_in_the_building_colocation_is_shown_as_ruled_out() -> None:
    spec = owning("buy").model_copy(
        update={"policy": Plan.model_fields["policy"].default.model_copy(update={"data_stays": True})}
    )  # fmt: skip
    result = solve(spec, read_site(ROOM))
    assert result.places[1].broken_rules == ("data may not leave the building",)


@pytest.mark.parametrize(
    ("site", "usd", "place", "text"),
    [
        ({}, 0.149, "US", "the default, as no country is given"),
        ({"country": "DE"}, 0.2571, "DE", "Germany"),
        ({"country": "US", "region": "US-IL"}, 0.1278, "US-IL", "Illinois"),
        ({"electricity": "$0.12/kWh"}, 0.12, None, "as given"),
    ],
)
def test_the_price_of_electricity_is_that_of_the_country(
    site: dict[str, str], usd: float, place: str | None, text: str
) -> None:
    spec = plan(
        offer("a", buy="$7200", power="1 kW"), owning={"staff": "$0/h"}, site=site,
        search={"ways": ["buy"]},
    )  # fmt: skip
    trained = workload()
    result = build_result(search(spec, trained, models().get("resnet50")), trained)
    assert result.winner is not None and result.electricity is not None
    assert result.winner.total_usd == pytest.approx(7200 + 360 * 10 * 1.58 * usd)
    assert result.electricity.place == place
    assert any(words.startswith("Electricity:") and text in words for words in result.assumptions)
