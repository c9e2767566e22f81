"""`gpuyard facility fabric` and `gpuyard facility storage` on the command line."""

import json
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from tests.conftest import Cli


def test_fabric_json_has_the_fixed_shape(cli: Cli) -> None:
    done = cli(
        "facility", "fabric", "--nodes", "128", "--ports-per-node", "8", "--switch",
        "nvidia-qm9700", "--rails", "8", "--oversubscription", "1", "--json",
    )  # fmt: skip
    document = json.loads(done.stdout)
    assert document["switches"] == {"leaf": 32, "spine": 16, "core": 0}
    assert document["cables"] == {"node_leaf": 1024, "leaf_spine": 1024, "spine_core": 0}
    assert document["management"]["switches"]["leaf"] == 7
    assert sum(run["count"] for run in document["cable_runs"]) == 2048
    assert document["all_reduce"]["effective_bytes_per_second"] < 8 * 50e9


def test_fabric_with_drawing_and_storage_network(cli: Cli, tmp_path: Path) -> None:
    drawing = tmp_path / "fabric.svg"
    done = cli(
        "facility", "fabric", "--nodes", "32", "--ports-per-node", "8", "--switch",
        "nvidia-qm9700", "--rails", "8", "--storage-ports", "2", "--storage-switch",
        "nvidia-qm9700", "--svg", str(drawing),
    )  # fmt: skip
    assert "non-blocking" in done.stdout
    assert "Storage network" in done.stdout and "Management network" in done.stdout
    assert ET.parse(drawing).getroot().tag.endswith("svg")  # noqa: S314  our own file


def test_director_has_six_spines(cli: Cli) -> None:
    done = cli(
        "facility", "fabric", "--nodes", "216", "--ports-per-node", "1", "--switch",
        "mellanox-cs7520", "--json",
    )  # fmt: skip
    document = json.loads(done.stdout)
    assert document["switches"]["spine"] == document["boards"]["spine"] == 6
    assert document["chassis"] == {"mellanox-cs7520": 1}


def test_proposed_network(cli: Cli) -> None:
    arguments = [
        "facility", "fabric", "--workload", "resnet50", "--on", "examples/apollo.cluster.yaml",
        "--target-efficiency", "0.9", "--batch", "64",
    ]  # fmt: skip
    choice = json.loads(cli(*arguments, "--json").stdout)["choice"]
    assert choice["reached"] and choice["chosen"]["scaling_efficiency"] >= 0.9
    assert choice["verdict"] in cli(*arguments).stdout


def test_storage(cli: Cli) -> None:
    arguments = [
        "facility", "storage", "examples/spoken-digits-linear.workload.yaml",
        "--on", "examples/apollo.cluster.yaml",
    ]  # fmt: skip
    document = json.loads(cli(*arguments, "--json").stdout)
    need = document["need"]
    assert need["read_bytes_per_second"] == need["samples_per_second"] * 48e3
    assert document["cluster_storage"]["read_bytes_per_second"] == 30e9
    assert {o["option"] for o in document["options"]} >= {"local-nvme", "nfs-server", "daos"}
    assert document["verdict"] in cli(*arguments).stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["fabric", "--nodes", "4"], "--nodes, --ports-per-node, and either --switch or --rate"),
        (["fabric", "--workload", "resnet50"], "both --workload and --on"),
        (["fabric", "--workload", "resnet50", "--on", "dgx-h100", "--nodes", "4"], "leave out --nodes"),
        (["fabric", "--workload", "resnet50", "--on", "dgx-h100"], "is one machine"),
        (
            ["fabric", "--nodes", "4", "--ports-per-node", "1", "--switch", "nvidia-qm9701"],
            "did you mean",
        ),
        (
            ["fabric", "--nodes", "4", "--ports-per-node", "1", "--switch", "nvidia-qm9700",
             "--storage-ports", "1"],
            "both --storage-ports and --storage-switch",
        ),
        (["storage", "resnet50", "--on", "dgx-h100", "--checkpoint-time", "5"], "has no unit"),
    ],
)  # fmt: skip
def test_mistakes_name_the_fix(cli: Cli, arguments: list[str], message: str) -> None:
    assert message in cli("facility", *arguments, status=2).stderr
