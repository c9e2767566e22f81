"""The bench of a deployment: which runs it comes to, and what is set for them."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from gpuyard.deploy.bench.data import make_data
from gpuyard.deploy.bench.plan import BenchOptions, DeployedHosts, _counts, plan_bench
from gpuyard.deploy.deployment import open_deployment
from gpuyard.errors import UserMistake
from gpuyard.workloads.samples import load_undecoded
from gpuyard.workloads.synthetic import synthetic_task
from tests.conftest import Cli
from tests.deploy.conftest import Up

SMALL = (
    "--workload",
    "spoken-digits-linear",
    "--gpu",
    "t4",
    "--batch",
    "8",
    "--time-per-point",
    "0.2 s",
)


def test_a_dry_run_lists_every_series_and_how_long_it_takes(cli: Cli, up: Up) -> None:
    said = json.loads(cli("deploy", "bench", up.file, "--gpu", "t4", "--dry-run", "--json").stdout)
    assert said["series"] == ["one GPU of each machine", "one machine", "all GPUs of each machine"]
    assert said["points"] == 3 * (2 + 1 + 1)
    assert said["expected_seconds"] > 12 * 8
    ranks = [[seat["node"] for seat in sweep["ranks"]] for sweep in said["sweeps"]]
    assert ranks == [["localhost", "two"], ["localhost"] * 2, ["localhost"] * 2 + ["two"] * 2]
    one = json.loads(
        cli("deploy", "bench", up.file, *SMALL, "--nodes", "2", "--dry-run", "--json").stdout
    )
    assert one["points"] == 2


def test_a_dry_run_reckons_what_slow_links_take(cli: Cli, up: Up) -> None:
    short = ("--gpu", "t4", "--batch", "32", "--time-per-point", "0.2 s", "--dry-run", "--json")

    def expected_seconds(*more: str) -> float:
        said = json.loads(cli("deploy", "bench", up.file, *short, *more).stdout)
        return float(said["expected_seconds"])

    # two of four points send 102 MB over 1 Gbit/s seven times, that with four GPUs half as much again
    quick = 4 * (4 + 1 + 1.3 * 0.2)
    assert expected_seconds() > quick + 7 * 0.8 * (1 + 1.5) - 3
    # in one machine nobody knows the link; of a T4's six slowest steps, some take longer than a point is to take
    assert quick / 2 <= expected_seconds("--nodes", "1") < quick / 2 + 2


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--link", "10 Gbit/s"), "can't set the speed of links; the cluster's is 1 Gbit/s"),
        (("--nodes", "3"), "expected 1 to 2 machines"),
        (("--data", "/elsewhere"), "/elsewhere is not in it"),
        (("--data", "../x"), "a folder in the shared storage"),
        (("--workload", "resnet5"), "resnet50"),
    ],
)
def test_what_can_not_be_measured_is_said_before_anything_runs(
    cli: Cli, up: Up, arguments: tuple[str, ...], said: str
) -> None:
    assert said in cli("deploy", "bench", up.file, "--gpu", "t4", *arguments, status=2).stderr


def test_images_are_made_in_the_shared_storage_and_read_by_every_rank(cli: Cli, up: Up) -> None:
    pytest.importorskip("PIL")
    small = ("--workload", "resnet18", "--gpu", "t4", "--batch", "4")
    narrow = (*small, "--nodes", "1")
    made = up.shared / "gpuyard-images"
    planned = json.loads(cli("deploy", "bench", up.file, *narrow, "--dry-run", "--json").stdout)
    assert planned["makes"] == str(made)
    assert not made.exists()
    without = ("--data", "none", "--dry-run", "--json")
    assert json.loads(cli("deploy", "bench", up.file, *narrow, *without).stdout)["makes"] is None
    opened = open_deployment(Path(up.file))
    options = BenchOptions(workload="resnet18", batches=(4,), nodes=(1,), gpu="t4")
    bench = plan_bench(opened, opened.state.hosts(), options, asks=False)
    make_data(bench, 6)
    make_data(bench, 6)
    assert [path.name for path in made.glob("*.tar")] == ["00000.tar"]
    samples = load_undecoded(bench.workload, synthetic_task(bench.workload, lambda _: 0.0))
    assert (samples.count, samples.data_source) == (6, f"{made}, read, not decoded")


def test_a_head_that_can_not_make_images_says_why(cli: Cli, up: Up) -> None:
    (up.shared / "gpuyard-images").write_text("a file, not a folder")
    said = cli("deploy", "bench", up.file, "--gpu", "t4", "--batch", "4", status=1).stderr
    assert "localhost could not make images" in said
    assert "File exists" in said and "--data none" in said


def test_links_are_set_for_a_run_and_go_back_however_it_ends() -> None:
    rates: list[float] = []
    set_link: Callable[[float], None] = rates.append
    place = DeployedHosts(
        ("a", "b"), link_bytes_per_second=1e6, set_link=set_link, usual_link_bytes_per_second=1e8
    )
    with pytest.raises(RuntimeError), place.up() as up:
        assert up.record(2).link_bytes_per_second == 1e6
        raise RuntimeError
    assert rates == [1e6, 1e8]
    assert place.ring_link_bytes_per_second(1) is None
    assert place.identity() != DeployedHosts(("a", "b")).identity()


def test_numbers_of_machines_are_those_of_the_paper() -> None:
    assert _counts(3, None) == [1, 2, 3]
    assert _counts(10, None) == [1, 2, 4, 6, 8, 10]
    with pytest.raises(UserMistake):
        _counts(2, [0])
