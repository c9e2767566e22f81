"""One price of a network: what `gpuyard facility fabric` designs is what a plan pays."""

import json

import pytest

from gpuyard.catalog.prices import ports
from gpuyard.planner.servers import Joining, network_price
from gpuyard.specs import Network
from tests.conftest import Cli


def test_the_ports_of_the_catalog_are_an_eighth_of_a_design_for_eight() -> None:
    for port in ports():
        assert port.usd == pytest.approx(
            network_price(Joining(Network(link=port.id)), 8).usd / 8, abs=1
        )


@pytest.mark.parametrize("machines", [2, 6, 12])
def test_the_command_line_says_the_same(cli: Cli, machines: int) -> None:
    asked = ["--nodes", str(machines), "--ports-per-node", "1", "--rate", "10 Gbit/s"]
    design = json.loads(cli("facility", "fabric", *asked, "--json").stdout)
    price = network_price(Joining(Network(link="ethernet-10g")), machines)
    assert price.usd == pytest.approx(design["price_usd"]["total"])


def test_what_no_switch_joins_is_not_counted_and_says_so() -> None:
    price = network_price(Joining(Network.model_validate({"rate": "5000 Gbit/s"})), 4)
    assert price.usd == 0
    assert price.source.startswith("not counted: no switch of the catalog")
