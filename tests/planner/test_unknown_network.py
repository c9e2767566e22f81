"""Rented machines with an unknown network: wider intervals, and effects on the decision."""

from typing import Any

import pytest

from gpuyard.planner.recommendation import build_result
from gpuyard.planner.result import PlanResult
from gpuyard.planner.servers import PricedServer, list_servers
from tests.planner.builder import candidates, offer, plan, workload


def unknown() -> PricedServer:
    """A rented machine with V100s and an unknown network."""
    return next(
        server
        for server in list_servers(plan())
        if server.network_assumed and server.gpu.id == "v100-sxm2-16gb" and server.gpus > 1
    )


def alike(name: str, network: dict[str, Any], rent: float | None = None) -> dict[str, Any]:
    """The same machine with a network that the plan knows."""
    server = unknown()
    return offer(
        name, gpu=server.gpu.id, gpus=server.gpus, topology=server.topology, network=network,
        rent=f"${rent if rent is not None else server.rent_usd_per_hour}/h",
    )  # fmt: skip


def solve(*offers: dict[str, Any], **changes: Any) -> PlanResult:
    spec = plan(
        *offers,
        search={
            "offers": [unknown().id, *(each["name"] for each in offers)],
            "ways": ["on-demand"],
            "nodes": [4],
        },
        **changes,
    )
    return build_result(candidates(spec), workload())


def test_the_interval_is_from_a_slow_to_a_fast_network() -> None:
    networks = {
        "as assumed": {"link": "ethernet-10g"},
        "slow": {"rate": "5 Gbit/s"},
        "fast": {"link": "ethernet-100g"},
    }
    spec = plan(
        *(alike(name, network) for name, network in networks.items()),
        search={"offers": [unknown().id, *networks], "ways": ["on-demand"], "nodes": [4]},
    )
    table = candidates(spec)
    rates = {}
    for number, at in enumerate(table.row):
        t = table.throughputs
        name = table.offers[table.offer[number]].server.id
        rates[name] = (t.low[at], t.samples_per_second[at], t.high[at])
    low, middle, high = rates[unknown().id]
    assert middle == pytest.approx(rates["as assumed"][1])
    assert low == pytest.approx(rates["slow"][0]) and low < rates["as assumed"][0]
    assert high == pytest.approx(rates["fast"][2]) and high > rates["as assumed"][2]


def test_the_answer_mentions_that_the_network_is_unknown() -> None:
    result = solve()
    assert result.winner is not None and result.winner.network_is_assumed
    assert result.winner.network == "an unknown network (ethernet-10g assumed)"
    assert any("5 to 100 Gbit/s" in words for words in result.assumptions)


def test_a_slow_network_may_miss_the_deadline() -> None:
    middle = solve().winner
    assert middle is not None
    # a little slack: kept at 10 Gbit/s, missed at 5
    tight = solve(time_per_run=f"{middle.run_seconds * 1.1} s")
    assert any(
        words.startswith("The network between several") and "longer than" in words
        for words in tight.would_change
    )
    loose = solve(time_per_run="1000 h")
    assert not any("network" in words for words in loose.would_change)


def test_a_slow_network_may_cost_more_than_a_known_one() -> None:
    server = unknown()
    known = alike("known", {"link": "ethernet-10g"}, rent=1.1 * (server.rent_usd_per_hour or 0))
    result = solve(known)
    assert result.winner is not None and result.winner.offer == server.id
    assert any("more than 4 × known" in words for words in result.would_change)


def test_a_slow_network_may_cost_more_than_a_bought_machine() -> None:
    middle = solve().winner
    assert middle is not None
    server = unknown()
    # a little more expensive than the choice, and certain
    own = alike("own", {"link": "ethernet-10g"}) | {"rent": None, "power": "1 W"}
    own |= {"buy": f"${1.05 * middle.total_usd / 4:.0f}"}
    spec = plan(
        own,
        owning={"staff": "$0/h"},
        search={"offers": [server.id, "own"], "ways": ["on-demand", "buy"], "nodes": [4],
                "networks": ["ethernet-10g"]},
    )  # fmt: skip
    result = build_result(candidates(spec), workload())
    assert result.winner is not None and result.winner.offer == server.id, result.verdict
    assert any("more than 4 × own, bought" in words for words in result.would_change)


def test_a_fast_network_may_beat_the_choice() -> None:
    server = unknown()
    known = alike("known", {"link": "ethernet-10g"}, rent=0.9 * (server.rent_usd_per_hour or 0))
    result = solve(known)
    assert result.winner is not None and result.winner.offer == "known"
    assert any(words.startswith("A fast network") for words in result.would_change)
