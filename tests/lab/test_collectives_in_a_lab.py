"""Collectives over a lab's links: correct, undilated, and with the algorithm that the model assumes."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from gpuyard import lab
from gpuyard.choices import Collective
from gpuyard.measure.collectives.expected import expected_seconds
from gpuyard.measure.collectives.plan import OPERATIONS
from tests.conftest import Cli
from tests.lab.conftest import namespaces

pytestmark = pytest.mark.usefixtures("can_make_labs")
ON_THE_WIRE = Path(__file__).with_name("on_the_wire.py")


def test_a_lab_for_one_run_is_made_and_removed(cli: Cli) -> None:
    before = namespaces()
    said = cli(
        "bench", "collectives", "--lab", "3x1Gbit,dilation=2", "--op", "all", "--bytes", "1KB,1MB",
        "--repeats", "2", "--json",
    )  # fmt: skip
    bench = json.loads(said.stdout)
    assert namespaces() <= before
    assert bench["ranks"] == 3
    assert bench["place"]["kind"] == "lab"
    assert bench["place"]["dilation"] == 2
    assert bench["link_bytes_per_second"] == 125e6
    assert len(bench["results"]) == 2 * len(OPERATIONS)
    assert all(result["correct"] for result in bench["results"])
    # dilated by 2 the links carry 0.5 Gbit/s; what is given is undilated, and can't be above 1
    assert bench["probe"]["ring_bytes_per_second"] < 1.1 * 125e6
    assert len(bench["probe"]["pairs"]) == 3


def test_a_lab_that_is_up_can_be_used_and_stays(cli: Cli) -> None:
    cli("lab", "up", "--nodes", "2", "--link", "100Mbit", "--name", "two")
    said = cli(
        "bench", "collectives", "--lab", "two", "--bytes", "100KB", "--repeats", "1", "--json"
    )
    assert json.loads(said.stdout)["place"]["nodes"] == ["node0", "node1"]
    assert "is up" in cli("lab", "status").stdout
    missing = cli("bench", "collectives", "--lab", "too", "--bytes", "1KB", status=2)
    assert "did you mean 'two'" in missing.stderr


def test_gloo_moves_the_bytes_that_the_model_expects(tmp_path: Path) -> None:
    """Compare the bytes that each node received, which don't show a broadcast's tree."""
    size, ranks = 4_000_000, 4
    with lab.temporary(lab.plan_lab(ranks, "1Gbit")) as made:
        running = [
            subprocess.Popen(
                node.command(
                    [
                        sys.executable,
                        str(ON_THE_WIRE),
                        str(rank),
                        str(ranks),
                        str(tmp_path),
                        str(size),
                    ]
                ),
                env={**os.environ, "GLOO_SOCKET_IFNAME": node.interface},
                stdout=subprocess.PIPE,
                text=True,
            )
            for rank, node in enumerate(made.nodes)
        ]
        said = [process.communicate(timeout=200)[0] for process in running]
    received: dict[Collective, list[float]] = json.loads(said[0])
    from gpuyard.measure.collectives.expected import RingLinks

    unit = RingLinks(bytes_per_second=1.0, latency_seconds=0.0)
    for operation in ("all_reduce", "reduce", "all_gather", "reduce_scatter"):
        _, busiest = expected_seconds(operation, "gloo", ranks, size, unit)
        # frames have headers, and a retransmission is received twice
        assert max(received[operation]) == pytest.approx(busiest, rel=0.12)
    assert received["broadcast"][0] < 0.1 * size
    assert min(received["broadcast"][1:]) == pytest.approx(size, rel=0.12)
