"""Tests of `gpuyard topo`."""

import json
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from tests.conftest import Cli

RECORDED = Path(__file__).parents[1] / "hardware" / "recorded"
FOUNDING = """\
\tGPU0\tGPU1\tGPU2\tGPU3\tCPU Affinity
GPU0\t X \tPHB\tPHB\tPHB\t0-7
GPU1\tPHB\t X \tPHB\tPHB\t0-7
GPU2\tPHB\tPHB\t X \tPHB\t0-7
GPU3\tPHB\tPHB\tPHB\t X \t0-7
"""


def test_preset_json(cli: Cli) -> None:
    document = json.loads(cli("topo", "--preset", "dual-root", "--json").stdout)
    assert document["gpus"] == [f"GPU{i}" for i in range(8)]
    assert document["classes"][0] == ["X", "PIX", "PHB", "PHB", "SYS", "SYS", "SYS", "SYS"]
    assert document["bytes_per_second"][0][4] == pytest.approx(6e9)
    assert {r["count"]: r["bytes_per_second"] for r in document["all_reduce"]} == pytest.approx(
        {2: 12e9, 4: 12e9, 8: 6e9}
    )
    assert "different sockets" in document["verdict"]


def test_best_and_worst_choices_are_shown_even_if_they_are_equal(cli: Cli) -> None:
    shown = cli("topo", "--preset", "nvlink-hybrid-cube-mesh").stdout
    assert "GPUs 0 and 3" in shown
    assert "6.67" in shown  # two NVLinks against the link between the sockets
    assert "1.00" in cli("topo", "--preset", "nvswitch").stdout


def test_the_founding_machine(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "topo.txt").write_text(FOUNDING)
    done = cli("topo", "--from", "topo.txt", "--gpu", "rtx-2080-ti", "--svg", "m.svg", cwd=tmp_path)
    assert "GPU3" in done.stdout
    assert "staged through host memory" in done.stdout
    root = ET.fromstring((tmp_path / "m.svg").read_text(encoding="utf-8"))  # noqa: S314  our own file
    assert root.tag.endswith("svg")
    document = json.loads(cli("topo", "--from", "topo.txt", "--json", cwd=tmp_path).stdout)
    assert document["classes"][0] == ["X", "PHB", "PHB", "PHB"]
    assert {d["cpu_affinity"] for d in document["devices"] if d["kind"] == "gpu"} == {"0-7"}


def test_cluster_and_catalog_machine(cli: Cli) -> None:
    of_file = json.loads(cli("topo", "--on", "examples/apollo.cluster.yaml", "--json").stdout)
    named = json.loads(cli("topo", "--on", "dgx-1-v100", "--json").stdout)
    assert of_file["classes"] == named["classes"]


def test_this_machine(cli: Cli) -> None:
    document = json.loads(cli("topo", "--json").stdout)
    assert any(device["kind"] == "socket" for device in document["devices"])
    assert document["verdict"]
    cli("topo")


def test_compare_shows_the_cost_of_a_layout(cli: Cli) -> None:
    done = cli(
        "topo", "compare", "dual-root", "single-root", "cascaded", "--workload", "vgg16",
        "--gpu", "rtx-2080-ti", "--gpus", "8", "--json",
    )  # fmt: skip
    layouts = {entry["layout"]: entry for entry in json.loads(done.stdout)["layouts"]}
    rates = {name: entry["prediction"]["samples_per_second"] for name, entry in layouts.items()}
    # without peer-to-peer all traffic goes up through the switches, and cascaded has one uplink
    assert rates["single-root"] > rates["cascaded"]
    assert max(entry["of_best"] for entry in layouts.values()) == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--preset", "dual-rot"], "did you mean 'dual-root'"),
        (["--preset", "dual-root", "--on", "dgx-a100"], "only one of --preset, --from, and --on"),
        (["--gpus", "4"], "--gpus needs --preset"),
        (
            ["--preset", "nvswitch", "--gpu", "t4"],
            "PCIe 3.0 x16 and no links",
        ),
        (["--preset", "dual-root", "--gpu", "a1000"], "no GPU is called 'a1000'"),
        (["--from", "nothing.txt"], "nothing.txt"),
        (["compare", "dual-root", "triple-root"], "no topology preset is called 'triple-root'"),
    ],
)
def test_mistakes_name_the_option(cli: Cli, arguments: list[str], message: str) -> None:
    done = cli("topo", *arguments, status=2)
    assert done.stderr.startswith("gpuyard: ")
    assert message in done.stderr


def test_lanes_show_whether_a_cpu_has_enough(cli: Cli) -> None:
    arguments = ("topo", "lanes", "--gpu", "rtx-3090", "--gpus", "4", "--nic", "infiniband-hdr")
    shown = cli(*arguments, "--cpu", "epyc-7742").stdout
    assert "Yes: one EPYC 7742" in shown and "4 × GeForce RTX 3090 at x16" in shown
    cpus = json.loads(cli(*arguments, "--json").stdout)["cpus"]
    assert cpus[0]["fits"] and not cpus[-1]["fits"]
    assert {"epyc-7742", "core-i9-10980xe"} <= {cpu["cpu"] for cpu in cpus}
    refused = cli("topo", "lanes", "--nic", "nvlink-3", status=2).stderr
    assert "nvlink-3 connects GPUs inside a machine" in refused
