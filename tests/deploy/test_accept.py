"""`gpuyard accept DEPLOYMENT` checks the machines of a deployment over its ssh."""

import json

from tests.conftest import Cli
from tests.deploy.conftest import Up


def test_the_machines_of_a_deployment_are_compared_with_its_cluster(cli: Cli, up: Up) -> None:
    record = json.loads(cli("accept", up.file, "--checks", "inventory", "--json", status=1).stdout)
    # the machines of the test have no GPU, and share this machine's parts
    assert [
        (node["name"], [(f["subject"], f["ratio"]) for f in node["findings"]])
        for node in record["nodes"]
    ] == [("localhost", [("GPUs", 0)]), ("two", [("GPUs", 0)])]
    first, second = (node["inventory"] for node in record["nodes"])
    assert first["boot_id"] == second["boot_id"] != ""
    assert first["memory_bytes"] == second["memory_bytes"] > 0


def test_a_deployment_knows_where_its_machines_are(cli: Cli, up: Up) -> None:
    assert "leave out --hosts" in cli("accept", up.file, "--hosts", "a,b", status=2).stderr
