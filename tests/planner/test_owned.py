"""Machines that are there already: kept at what they are worth, alone and with rented ones beside them."""

import datetime
from pathlib import Path
from typing import Any

import pytest

from gpuyard.catalog import models
from gpuyard.catalog.specfiles import known_names
from gpuyard.errors import UserMistake
from gpuyard.planner.playbook import team_of
from gpuyard.planner.result import Choice, PlanResult
from gpuyard.planner.search import plan_result, search
from gpuyard.planner.servers import servers_of
from gpuyard.specs.plan import Plan
from tests.planner.builder import offer, plan, workload

SITE = {"electricity": "$0.10/kWh", "pue": 1.5}


def have(**changes: Any) -> dict[str, Any]:
    """One V100 in a machine of 1 kW, worth $1,200."""
    return {"name": "ours", "gpu": "v100-sxm2-16gb", "power": "1 kW", "value": "$1200"} | changes


def asked(
    *offers: dict[str, Any], owned: dict[str, Any] | list[dict[str, Any]], **changes: Any
) -> Plan:
    changes = {"owning": {"staff": "$0/h"}, "site": SITE, **changes}
    wish = {
        "offers": [one["name"] for one in offers] or ["ours"],
        "nodes": [1],
        **changes.pop("search", {}),
    }
    have = owned if isinstance(owned, list) else [owned]
    return plan(*offers, owned=have, search=wish, **changes)


def found(made: Plan) -> PlanResult:
    known = workload()
    return plan_result(search(made, known, models().get("resnet50")), known)


def kept(result: PlanResult) -> Choice:
    assert result.winner is not None
    assert result.winner.offer == "ours"
    return result.winner


def test_keeping_by_hand() -> None:
    owning = {"staff": "$0/h", "value_kept_per_year": "50 %"}
    result = found(asked(owned=have(), owning=owning))
    # what it would sell for, its energy, less what it still brings after three years
    energy = 360 * 10 * 1.5 * 0.10
    choice = kept(result)
    assert (choice.way, choice.what) == ("keep", "ours, kept")
    assert choice.total_usd == pytest.approx(1200 + energy - 1200 / 8)
    assert any(
        words.startswith("You have 1: keeping 1 costs the $1,200") for words in result.reasons
    )
    assert any("worth $1,200 each" in words for words in result.assumptions)


def test_the_answer_says_how_old_they_are() -> None:
    result = found(asked(owned=have(age="8 years")))
    assert any("as the plan says, 8 years old" in words for words in result.assumptions)


def test_something_cheaper_is_preferred_and_the_old_ones_stand_beside_it() -> None:
    result = found(asked(offer("cloud", rent="$0.01/h"), owned=have()))
    assert result.winner is not None and result.winner.offer == "cloud"
    assert [other.name for other in result.runners_up][:1] == ["what you have, kept"]
    assert result.alternatives[0].name == "keep what you have, and nothing else"


def test_no_more_are_kept_than_there_are() -> None:
    # 100 runs of ten hours in 730.5 h that are busy for 80 % want two
    alone = found(asked(owned=have(), runs_per_month=100))
    assert alone.winner is None
    assert any(
        left.reason == "needs more of them than you have" and left.candidates
        for left in alone.left_out
    )
    assert kept(found(asked(owned=have(count=2), runs_per_month=100))).clusters == 2


def test_the_rest_is_rented() -> None:
    made = asked(offer("cloud", rent="$5/h"), owned=have(), runs_per_month=100)
    result = found(made)
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


def test_new_ones_do_what_the_old_ones_can_not() -> None:
    result = found(asked(new(), owned=have(), runs_per_month=100))
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
    assert part.utilisation == pytest.approx(0.8)
    energy = 36 * 1000 * 1.5 * 0.10
    assert choice.total_usd == pytest.approx(1200 + 5000 + energy)
    assert choice.usd_per_run == pytest.approx(choice.total_usd / 3600)
    assert choice.usd_per_run_low < choice.usd_per_run < choice.usd_per_run_high
    assert choice.what == "ours, kept, with 58 % of the runs, and new, bought"
    assert choice.what in {front.what for front in result.front}
    assert any("all GPUs would wait for the slowest" in words for words in result.reasons)
    (more,) = (o for o in result.alternatives if o.name == "keep what you have, and add to it")
    assert more.sentence.startswith(f"{choice.what}. This is the plan's choice")


def test_what_is_added_may_have_peaks_that_are_rented() -> None:
    people = {"researchers": 1, "hires_per_year": 0.14}
    made = asked(offer("cloud", rent="$3/h"), new(), owned=have(), runs_per_month=90, people=people)
    choice = found(made).winner
    assert choice is not None and choice.kept and choice.rest is not None
    # 127.8 runs a month at the end, of which 116.88 are done by both machines
    wanted = [90 + 37.8 * step / 36 for step in range(37)]
    rented = sum(max(w - 2 * 58.44, 0) for w in wanted) / sum(wanted)
    assert choice.rest.share_of_runs == pytest.approx(rented, rel=1e-6)
    assert choice.kept[0].share_of_runs == pytest.approx(58.44 * 37 / sum(wanted), rel=1e-6)


def test_two_kinds_that_are_there_do_it_together() -> None:
    both = [have(), have(name="others", value="$900")]
    choice = found(asked(new(), owned=both, runs_per_month=100)).winner
    assert choice is not None and len(choice.kept) == 1
    assert {choice.offer, choice.kept[0].offer} == {"ours", "others"}
    assert choice.total_usd == pytest.approx(1200 + 900 + 36 * 1000 * 1.5 * 0.10)
    assert choice.clusters == 1 and choice.allowed


def test_some_of_the_old_ones_are_kept_where_all_would_cost_more() -> None:
    # of 280 runs a month the fast one does about 228 and each old one 58
    fast = offer("fast", gpus=4, buy="$9000", power="1 kW", topology="full-mesh")
    old = have(count=3, value="$4000")
    result = found(asked(fast, owned=old, runs_per_month=280))
    choice = result.winner
    assert choice is not None
    (part,) = choice.kept
    assert (choice.offer, choice.clusters, part.offer, part.clusters) == ("fast", 1, "ours", 1)
    assert any(
        words.startswith("Of your 3 × ours, 2 would not pay here.") for words in result.reasons
    )


def test_the_budget_counts_both() -> None:
    usual = found(asked(new(), owned=have(), runs_per_month=100)).winner
    assert usual is not None
    just = found(asked(new(), owned=have(), runs_per_month=100, budget=usual.total_usd + 1)).winner
    assert just is not None and just.kept
    short = found(asked(new(), owned=have(), runs_per_month=100, budget=usual.total_usd - 1))
    assert short.winner is None


def test_old_ones_that_are_too_slow_are_left_for_smaller_jobs() -> None:
    fast = offer("fast", gpus=4, buy="$9000", power="1 kW", topology="full-mesh")
    result = found(asked(fast, owned=have(), time_per_run="5 hours"))
    assert result.winner is not None and not result.winner.kept
    (said,) = (words for words in result.reasons if words.startswith("ours, which you have"))
    assert "takes 10 h for a run, which is too long" in said
    # $1,200 over 36 months; when idle it draws nothing unless the plan says so
    assert "costs $33.33 per month" in said and "selling one brings $1,200" in said


def test_what_could_be_bought_instead_is_sited_in_its_own_number() -> None:
    new = offer("new", buy="$90000", power="1 kW")
    result = found(asked(offer("cloud", rent="$5/h"), new, owned=have(), runs_per_month=100))
    assert kept(result).clusters == 1
    # two would be needed for all runs
    assert result.places[0].total_usd == pytest.approx(2 * 90_000 + 36 * 1000 * 1.5 * 0.10)


@pytest.mark.parametrize(
    ("given", "value"),
    [
        ({"value": "$700"}, 700),
        ({"value": None, "price": "$8000", "age": "2 years"}, 2000),
        ({"value": None}, 0),
    ],
)
def test_the_remaining_value(given: dict[str, Any], value: float) -> None:
    owning = {"value_kept_per_year": "50 %"}
    (server, *_) = servers_of(asked(owned=have(**given), owning=owning))
    assert server.value_usd == pytest.approx(value)


def test_the_day_of_buying_gives_the_age() -> None:
    today = datetime.datetime.now(datetime.UTC).date()
    old = have(value=None, price="$8000", bought=today - datetime.timedelta(days=1461))
    (server, *_) = servers_of(asked(owned=old, owning={"value_kept_per_year": "50 %"}))
    assert server.value_usd == pytest.approx(500, rel=1e-3)
    to_come = have(value=None, price="$8000", bought=today + datetime.timedelta(days=2))
    with pytest.raises(UserMistake, match="a day to come"):
        servers_of(asked(owned=to_come))


def test_a_network_that_is_there_costs_nothing() -> None:
    two = {"search": {"nodes": [2]}}
    joined = kept(found(asked(owned=have(count=2, network={"link": "ethernet-10g"}), **two)))
    assert (joined.nodes, joined.network, joined.network_usd) == (2, "ethernet-10g", 0)
    cheapest = {"search": {"nodes": [2], "networks": ["ethernet-10g"]}}
    apart = kept(found(asked(owned=have(count=2), **cheapest)))
    assert apart.network_usd > 0
    assert apart.total_usd - joined.total_usd == pytest.approx(apart.network_usd)


def test_a_machine_of_the_catalog_and_wishes_for_new_ones() -> None:
    made = asked(
        owned={"machine": "dgx-1-v100", "value": "$5000"},
        policy={"data_stays": True},
        search={"gpus": ["h100-sxm5-80gb"], "offers": None, "nodes": [1]},
    )
    result = found(made)
    assert result.winner is not None
    assert result.winner.name.startswith("your NVIDIA DGX-1") and result.winner.gpus == 8


@pytest.mark.parametrize(
    ("owned", "ways", "why"),
    [
        ({"name": "x"}, None, "either a 'machine' or a 'gpu'"),
        ({"machine": "dgx-1-v100", "gpu": "v100-sxm2-16gb"}, None, "either a 'machine' or a 'gpu'"),
        ({"machine": "dgx-1-v100", "gpus": 4}, None, "the catalog knows the machine's"),
        ({"machine": "dgx-1-v100", "price": "$9000"}, None, "needs 'age' or 'bought'"),
        ({"machine": "dgx-1-v100", "age": "2 years", "bought": "2020-01-01"}, None, "not both"),
        ({"machine": "dgx-1-v100"}, ["buy"], "add 'keep' to 'search.ways'"),
        ({"machine": "dgx-1-v1000"}, None, "no machine is called 'dgx-1-v1000'"),
    ],
)
def test_what_can_not_be(owned: dict[str, Any], ways: list[str] | None, why: str) -> None:
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


def test_the_playbook_knows_where_they_stand() -> None:
    assert team_of(asked(owned=have()), Path()).where == "on-premises"
