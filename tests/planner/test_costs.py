"""Costs by hand: a run takes ten hours on one V100, and there are ten per month for three years."""

import pytest

from gpuyard.facilities.fabric import HostPorts, TypicalFloor, find_cheapest_fabric
from gpuyard.planner import Choice
from gpuyard.planner.recommendation import build_result
from gpuyard.planner.servers import list_servers
from gpuyard.specs.plan import Plan
from tests.planner.builder import candidates, offer, plan, workload

HOURS_PER_YEAR = 8766.0


def winner(spec: Plan) -> Choice:
    result = build_result(candidates(spec), workload())
    assert result.winner is not None
    return result.winner


def test_on_demand_pays_for_the_hours_of_the_run() -> None:
    chosen = winner(plan(offer("a", rent="$3/h"), search={"ways": ["on-demand"]}))
    assert chosen.run_seconds == pytest.approx(36_000)
    assert chosen.usd_per_run == pytest.approx(30.0)
    assert chosen.total_usd == pytest.approx(30.0 * 360)
    assert chosen.usd_per_run_low < 30.0 < chosen.usd_per_run_high


def test_rented_machines_are_paid_while_they_start() -> None:
    spec = plan(
        offer("a", rent="$3/h"),
        renting={"start": "30 min", "data": "0 B", "results": "0 B"},
        search={"ways": ["on-demand"]},
    )
    assert winner(spec).usd_per_run == pytest.approx(31.5)
    assert winner(spec).run_seconds == pytest.approx(36_000 + 1800)


def test_reserved_pays_for_every_hour() -> None:
    spec = plan(
        offer("a", rent="$3/h"),
        prices={"reserved_1_year": "40%"},
        search={"ways": ["reserved-1-year"]},
    )
    chosen = winner(spec)
    assert chosen.total_usd == pytest.approx(3 * HOURS_PER_YEAR * 3 * 0.6)
    assert chosen.usd_per_run == pytest.approx(chosen.total_usd / 360)
    assert chosen.utilization == pytest.approx(100 / 730.5)
    assert not chosen.price_is_assumed  # the plan says it


def test_spot_takes_longer_and_is_paid_for_longer() -> None:
    spec = plan(
        offer("a", spot="$1/h"),
        spot={"interruptions_per_hour": 0.5, "checkpoint": "1 min", "restart": "10 min"},
        search={"ways": ["spot"]},
    )
    chosen = winner(spec)
    assert chosen.run_seconds > 36_000
    assert chosen.usd_per_run == pytest.approx(chosen.run_seconds / 3600)
    calm = winner(spec.model_copy(update={"spot": spec.spot.model_copy(
        update={"interruptions_per_hour": 0.0})}))  # fmt: skip
    assert calm.usd_per_run == pytest.approx(10.0)


def test_spot_is_interrupted_as_often_as_its_cloud_publishes() -> None:
    servers = {server.id: server for server in list_servers(plan(search={"ways": ["spot"]}))}
    rates = {
        name: server.spot_interruptions_per_hour
        for name, server in servers.items()
        if server.spot_usd_per_hour
    }
    published = {rate for name, rate in rates.items() if name.startswith("aws/p5.")}
    assumed = {rate for name, rate in rates.items() if not name.startswith("aws/")}
    assert published and assumed == {0.05}
    assert max(published) < 0.05


def test_bought_pays_hardware_power_and_staff() -> None:
    spec = plan(
        offer("a", buy="$7200", power="1 kW"),
        site={"electricity": "$0.10/kWh", "pue": 1.5},
        owning={"staff_hours_per_month": 1, "staff": "$50/h"},
        search={"ways": ["buy"]},
    )
    chosen = winner(spec)
    energy = 360 * 10 * 1.0 * 1.5 * 0.10  # only while it runs
    assert chosen.total_usd == pytest.approx(7200 + energy + 36 * 50)
    assert chosen.watts == pytest.approx(1500)
    assert chosen.clusters == 1


def test_a_bought_machine_that_waits_draws_power_and_fails() -> None:
    def create_plan(**owning: object) -> Plan:
        return plan(
            offer("a", buy="$7200", power="1 kW"),
            site={"electricity": "$0.10/kWh", "pue": 1.5},
            owning={"staff": "$0/h", **owning},
            search={"ways": ["buy"]},
        )

    plain, idle = winner(create_plan()), winner(create_plan(idle_power="30%"))
    waiting_hours = 36 * 730.5 - 360 * 10
    assert idle.total_usd - plain.total_usd == pytest.approx(waiting_hours * 0.3 * 1.5 * 0.10)
    failing = winner(create_plan(failure="$5000"))
    assert failing.total_usd > plain.total_usd


def test_colocation_comes_on_top() -> None:
    offers = offer("a", buy="$7200", power="1 kW")
    site = {"colocation": "$200/kW/month", "electricity": "$0.12/kWh"}
    home = winner(plan(offers, site=site, search={"ways": ["buy"]}))
    away = winner(plan(offers, site=site, search={"ways": ["colocate"]}))
    # a kW for 36 months, and a better PUE than at home, 1.3 against 1.58, while it works
    energy = 360 * 10 * (1.3 - 1.58) * 0.12
    assert away.total_usd - home.total_usd == pytest.approx(200 * 36 + energy)
    assert away.watts == 0  # not the site's


def test_more_runs_than_one_machine_can_do_need_more_machines() -> None:
    spec = plan(offer("a", buy="$1000"), runs_per_month=200, search={"ways": ["buy"]})
    chosen = winner(spec)
    assert chosen.clusters == 4  # 2,000 h a month on machines that work 80% of 730.5 h
    assert chosen.utilization == pytest.approx(2000 / (4 * 730.5))


def test_runs_grow_with_the_people() -> None:
    spec = plan(
        offer("a", rent="$1/h"),
        people={"researchers": 12, "hires_per_year": 4},
        search={"ways": ["on-demand"]},
    )
    result = build_result(candidates(spec), workload())
    assert result.goal.runs_per_month_at_end == pytest.approx(20)
    assert result.goal.runs == pytest.approx(36 * 15)


@pytest.mark.parametrize("machines", [2, 4, 12])
def test_a_network_costs_as_much_as_the_facility_design(machines: int) -> None:
    several = offer("a", buy="$1000", network={"link": "ethernet-10g"})
    free = {"owning": {"staff": "$0/h"}, "site": {"electricity": "$0/kWh"}}
    bought = winner(plan(several, **free, search={"ways": ["buy"], "nodes": [machines]}))
    design = find_cheapest_fabric(
        HostPorts(10, "ethernet"), machines, TypicalFloor.from_node_count(machines)
    )
    assert bought.total_usd - 1000 * machines == pytest.approx(design.bill.total_usd)
    assert bought.network_usd == pytest.approx(design.bill.total_usd)
    assert design.kind == "direct" or design.switch.name in bought.network_price_source
    assert "2026" in bought.network_price_source


def test_a_machine_that_brings_its_cards_pays_for_switches_and_cables_only() -> None:
    free = {"owning": {"staff": "$0/h"}, "site": {"electricity": "$0/kWh"}}
    spec = plan(prices={"servers": [{"machine": "dgx-1-v100", "price": "$1000"}]}, **free,
                 search={"offers": ["dgx-1-v100"], "ways": ["buy"], "nodes": [4]})  # fmt: skip
    bought = winner(spec)
    design = find_cheapest_fabric(
        HostPorts(100, "infiniband", 4), 4, TypicalFloor.from_node_count(4)
    )
    bill = design.bill
    assert bought.network_usd == pytest.approx((bill.total_usd or 0) - bill.cards_usd)


def test_a_port_is_paid_for_each_bought_machine_only() -> None:
    several = offer("a", buy="$1000", rent="$1/h", network={"link": "ethernet-10g"})
    bought = winner(plan(several, owning={"staff": "$0/h"}, site={"electricity": "$0/kWh"},
                         search={"ways": ["buy"], "nodes": [2]}))  # fmt: skip
    # two cards of $150 and a cable of $25: two machines need no switch
    assert bought.total_usd == pytest.approx(2 * 1000 + 325)
    rented = winner(plan(several, search={"ways": ["on-demand"], "nodes": [2]}))
    # clouds bill whole seconds
    assert rented.usd_per_run == pytest.approx(2 * rented.run_seconds / 3600, abs=2 / 3600)
