"""Machines that are there already: kept at what they are worth, alone and with rented ones beside them."""

import datetime
from pathlib import Path
from typing import Any

import pytest

from gpuyard.catalog import models
from gpuyard.catalog.specfiles import known_names
from gpuyard.errors import UserMistake
from gpuyard.planner.choice import Choice
from gpuyard.planner.playbook import read_team
from gpuyard.planner.recommendation import build_result
from gpuyard.planner.result import PlanResult
from gpuyard.planner.search import search
from gpuyard.planner.servers import list_servers
from gpuyard.specs.plan import Plan
from tests.planner.builder import offer, plan, workload

SITE = {"electricity": "$0.10/kWh", "pue": 1.5}


def have(**changes: Any) -> dict[str, Any]:
    """One V100 in a machine of 1 kW, worth $1,200."""
    return {"name": "ours", "gpu": "v100-sxm2-16gb", "power": "1 kW", "value": "$1200"} | changes


def create_plan(
    *offers: dict[str, Any], owned: dict[str, Any] | list[dict[str, Any]], **changes: Any
) -> Plan:
    changes = {"owning": {"staff": "$0/h"}, "site": SITE, **changes}
    search_options = {
        "offers": [each["name"] for each in offers] or ["ours"],
        "nodes": [1],
        **changes.pop("search", {}),
    }
    have = owned if isinstance(owned, list) else [owned]
    return plan(*offers, owned=have, search=search_options, **changes)


def solve(spec: Plan) -> PlanResult:
    trained = workload()
    return build_result(search(spec, trained, models().get("resnet50")), trained)


def kept(result: PlanResult) -> Choice:
    assert result.winner is not None
    assert result.winner.offer == "ours"
    return result.winner


def test_keeping_by_hand() -> None:
    owning = {"staff": "$0/h", "value_kept_per_year": "50%"}
    result = solve(create_plan(owned=have(), owning=owning))
    # what it would sell for, its energy, less what it still brings after three years
    energy = 360 * 10 * 1.5 * 0.10
    choice = kept(result)
    assert (choice.way, choice.summary) == ("keep", "ours, kept")
    assert choice.total_usd == pytest.approx(1200 + energy - 1200 / 8)
    assert any(words.startswith("You have 1") and "$1,200" in words for words in result.reasons)
    assert any("worth $1,200 each" in words for words in result.assumptions)


def test_the_answer_shows_the_age_of_owned_machines() -> None:
    result = solve(create_plan(owned=have(age="8 years")))
    assert any("8 years old" in words for words in result.assumptions)


def test_a_cheaper_offer_wins_and_owned_machines_are_listed_as_runner_up() -> None:
    result = solve(create_plan(offer("cloud", rent="$0.01/h"), owned=have()))
    assert result.winner is not None and result.winner.offer == "cloud"
    assert [other.name for other in result.runners_up][:1] == ["what you have, kept"]
    assert result.alternatives[0].name == "keep what you have, and nothing else"


def test_the_plan_keeps_at_most_the_owned_machines() -> None:
    # 100 runs of ten hours in 730.5 h that are busy for 80% want two
    alone = solve(create_plan(owned=have(), runs_per_month=100))
    assert alone.winner is None
    assert any(
        left.reason == "needs more of them than you have" and left.candidates
        for left in alone.left_out
    )
    assert kept(solve(create_plan(owned=have(count=2), runs_per_month=100))).clusters == 2


def test_the_rest_is_rented() -> None:
    spec = create_plan(offer("cloud", rent="$5/h"), owned=have(), runs_per_month=100)
    result = solve(spec)
    choice = kept(result)
    assert (choice.way, choice.owned_way, choice.clusters) == ("hybrid", "keep", 1)
    assert choice.rest is not None and choice.rest.offer == "cloud"
    # 58.44 runs a month are done at home
    assert choice.rest.share_of_runs == pytest.approx(1 - 0.5844)
    energy = 36 * 584.4 * 1.5 * 0.10
    assert choice.total_usd == pytest.approx(1200 + energy + 36 * 41.56 * 50)
    assert any("you have no more of them" in words for words in result.reasons)
    names = [other.name for other in result.alternatives]
    assert "keep what you have, rent the rest" in names


def new(**changes: Any) -> dict[str, Any]:
    return offer("new", buy="$5000", power="1 kW", **changes)


def test_new_machines_do_the_runs_that_owned_machines_cannot() -> None:
    result = solve(create_plan(new(), owned=have(), runs_per_month=100))
    choice = result.winner
    assert choice is not None
    assert (choice.offer, choice.way, choice.owned_way, choice.clusters) == (
        "new",
        "hybrid",
        "buy",
        1,
    )
    (part,) = choice.kept
    # 58.44 runs a month are done by the old one
    assert (part.offer, part.clusters) == ("ours", 1)
    assert part.share_of_runs == pytest.approx(0.5844)
    assert part.utilization == pytest.approx(0.8)
    energy = 36 * 1000 * 1.5 * 0.10
    assert choice.total_usd == pytest.approx(1200 + 5000 + energy)
    assert choice.usd_per_run == pytest.approx(choice.total_usd / 3600)
    assert choice.usd_per_run_low < choice.usd_per_run < choice.usd_per_run_high
    assert choice.summary == "ours, kept, with 58% of the runs, and new, bought"
    assert choice.summary in {front.summary for front in result.front}
    assert any("all GPUs would wait for the slowest" in words for words in result.reasons)
    (more,) = (o for o in result.alternatives if o.name == "keep what you have, and add to it")
    assert more.sentence.startswith(f"{choice.summary}. This is the plan's choice")


def test_peaks_beyond_added_machines_may_be_rented() -> None:
    people = {"researchers": 1, "hires_per_year": 0.14}
    spec = create_plan(
        offer("cloud", rent="$3/h"), new(), owned=have(), runs_per_month=90, people=people
    )
    choice = solve(spec).winner
    assert choice is not None and choice.kept and choice.rest is not None
    # 127.8 runs a month at the end, of which 116.88 are done by both machines
    demand = [90 + 37.8 * step / 36 for step in range(37)]
    rented = sum(max(w - 2 * 58.44, 0) for w in demand) / sum(demand)
    assert choice.rest.share_of_runs == pytest.approx(rented, rel=1e-6)
    assert choice.kept[0].share_of_runs == pytest.approx(58.44 * 37 / sum(demand), rel=1e-6)


def test_two_kinds_of_owned_machines_are_combined() -> None:
    both = [have(), have(name="others", value="$900")]
    choice = solve(create_plan(new(), owned=both, runs_per_month=100)).winner
    assert choice is not None and len(choice.kept) == 1
    assert {choice.offer, choice.kept[0].offer} == {"ours", "others"}
    assert choice.total_usd == pytest.approx(1200 + 900 + 36 * 1000 * 1.5 * 0.10)
    assert choice.clusters == 1 and choice.allowed


def test_some_of_the_old_ones_are_kept_where_all_would_cost_more() -> None:
    # of 280 runs a month the fast one does about 228 and each old one 58
    fast = offer("fast", gpus=4, buy="$9000", power="1 kW", topology="full-mesh")
    old = have(count=3, value="$4000")
    result = solve(create_plan(fast, owned=old, runs_per_month=280))
    choice = result.winner
    assert choice is not None
    (part,) = choice.kept
    assert (choice.offer, choice.clusters, part.offer, part.clusters) == ("fast", 1, "ours", 1)
    assert any(
        words.startswith("Of your 3 × ours, 2 would not pay here.") for words in result.reasons
    )


def test_the_budget_includes_owned_and_added_machines() -> None:
    usual = solve(create_plan(new(), owned=have(), runs_per_month=100)).winner
    assert usual is not None
    just = solve(
        create_plan(new(), owned=have(), runs_per_month=100, budget=usual.total_usd + 1)
    ).winner
    assert just is not None and just.kept
    short = solve(create_plan(new(), owned=have(), runs_per_month=100, budget=usual.total_usd - 1))
    assert short.winner is None


def test_owned_machines_that_are_too_slow_are_not_used() -> None:
    fast = offer("fast", gpus=4, buy="$9000", power="1 kW", topology="full-mesh")
    result = solve(create_plan(fast, owned=have(), time_per_run="5 hours"))
    assert result.winner is not None and not result.winner.kept
    (sentence,) = (words for words in result.reasons if words.startswith("ours, which you have"))
    assert "takes 10 h" in sentence
    # $1,200 over 36 months; when idle it draws nothing unless the plan says so
    assert "$33.33 per month" in sentence and "selling one brings $1,200" in sentence


def test_a_purchase_instead_is_priced_with_its_own_machine_count() -> None:
    new = offer("new", buy="$90000", power="1 kW")
    result = solve(create_plan(offer("cloud", rent="$5/h"), new, owned=have(), runs_per_month=100))
    assert kept(result).clusters == 1
    # two would be needed for all runs
    assert result.places[0].total_usd == pytest.approx(2 * 90_000 + 36 * 1000 * 1.5 * 0.10)


@pytest.mark.parametrize(
    ("changes", "value"),
    [
        ({"value": "$700"}, 700),
        ({"value": None, "price": "$8000", "age": "2 years"}, 2000),
        ({"value": None}, 0),
    ],
)
def test_the_remaining_value(changes: dict[str, Any], value: float) -> None:
    owning = {"value_kept_per_year": "50%"}
    (server, *_) = list_servers(create_plan(owned=have(**changes), owning=owning))
    assert server.value_usd == pytest.approx(value)


def test_the_day_of_buying_gives_the_age() -> None:
    today = datetime.datetime.now(datetime.UTC).date()
    old = have(value=None, price="$8000", bought=today - datetime.timedelta(days=1461))
    (server, *_) = list_servers(create_plan(owned=old, owning={"value_kept_per_year": "50%"}))
    assert server.value_usd == pytest.approx(500, rel=1e-3)
    to_come = have(value=None, price="$8000", bought=today + datetime.timedelta(days=2))
    with pytest.raises(UserMistake, match="bought"):
        list_servers(create_plan(owned=to_come))


def test_an_existing_network_costs_nothing() -> None:
    two = {"search": {"nodes": [2]}}
    joined = kept(solve(create_plan(owned=have(count=2, network={"link": "ethernet-10g"}), **two)))
    assert (joined.nodes, joined.network, joined.network_usd) == (2, "ethernet-10g", 0)
    cheapest = {"search": {"nodes": [2], "networks": ["ethernet-10g"]}}
    apart = kept(solve(create_plan(owned=have(count=2), **cheapest)))
    assert apart.network_usd > 0
    assert apart.total_usd - joined.total_usd == pytest.approx(apart.network_usd)


def test_a_machine_of_the_catalog_and_wishes_for_new_ones() -> None:
    spec = create_plan(
        owned={"machine": "dgx-1-v100", "value": "$5000"},
        policy={"data_stays": True},
        search={"gpus": ["h100-sxm5-80gb"], "offers": None, "nodes": [1]},
    )
    result = solve(spec)
    assert result.winner is not None
    assert result.winner.name.startswith("your NVIDIA DGX-1") and result.winner.gpus == 8


@pytest.mark.parametrize(
    ("owned", "ways", "why"),
    [
        ({"name": "x"}, None, "either a 'machine' or a 'gpu'"),
        ({"machine": "dgx-1-v100", "gpu": "v100-sxm2-16gb"}, None, "either a 'machine' or a 'gpu'"),
        ({"machine": "dgx-1-v100", "gpus": 4}, None, "'gpus' and 'topology'"),
        ({"machine": "dgx-1-v100", "price": "$9000"}, None, "needs 'age' or 'bought'"),
        ({"machine": "dgx-1-v100", "age": "2 years", "bought": "2020-01-01"}, None, "not both"),
        ({"machine": "dgx-1-v100"}, ["buy"], "add 'keep' to 'search.ways'"),
        ({"machine": "dgx-1-v1000"}, None, "no machine is called 'dgx-1-v1000'"),
    ],
)
def test_impossible_owned_machines_are_refused(
    owned: dict[str, Any], ways: list[str] | None, why: str
) -> None:
    with pytest.raises(ValueError, match=why):
        Plan.model_validate(
            {
                "name": "x",
                "workload": workload(),
                "runs_per_month": 1,
                "owned": [owned],
                "search": {"ways": ways} if ways else {},
            },
            context=known_names(),
        )


def test_two_that_are_alike_need_names() -> None:
    with pytest.raises(ValueError, match="two offers or owned machines are called"):
        plan(owned=[{"machine": "dgx-1-v100"}, {"machine": "dgx-1-v100"}])


def test_the_playbook_assumes_owned_machines_are_on_premises() -> None:
    assert read_team(create_plan(owned=have()), Path()).where == "on-premises"
