"""One price of a network: what `gpuyard facility fabric` designs is what a plan pays."""

import json

import pytest

from gpuyard.catalog.prices import ports
from gpuyard.planner.servers import NetworkOption, price_network
from gpuyard.specs import Network
from tests.conftest import Cli


def test_the_ports_of_the_catalog_are_an_eighth_of_a_design_for_eight() -> None:
    for port in ports():
        assert port.usd == pytest.approx(
            price_network(NetworkOption(Network(link=port.id)), 8).usd / 8, abs=1
        )


@pytest.mark.parametrize("machines", [2, 6, 12])
def test_the_command_line_shows_the_same_prices(cli: Cli, machines: int) -> None:
    options = ["--nodes", str(machines), "--ports-per-node", "1", "--rate", "10 Gbit/s"]
    design = json.loads(cli("facility", "fabric", *options, "--json").stdout)
    price = price_network(NetworkOption(Network(link="ethernet-10g")), machines)
    assert price.usd == pytest.approx(design["price_usd"]["total"])


def test_a_network_that_no_switch_supports_is_not_counted() -> None:
    price = price_network(NetworkOption(Network.model_validate({"rate": "5000 Gbit/s"})), 4)
    assert price.usd == 0
    assert price.source.startswith("not counted")
