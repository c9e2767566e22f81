"""The bench of a deployment: its planned runs, and the link rates that it sets."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from gpuyard.deploy.bench.data import create_images
from gpuyard.deploy.bench.plan import BenchOptions, DeployedHosts, _choose_counts, plan_bench
from gpuyard.deploy.deployment import load_deployment
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
    output = json.loads(
        cli("deploy", "bench", up.file, "--gpu", "t4", "--dry-run", "--json").stdout
    )
    assert output["series"] == [
        "one GPU of each machine",
        "one machine",
        "all GPUs of each machine",
    ]
    assert output["points"] == 3 * (2 + 1 + 1)
    assert output["expected_seconds"] > 12 * 8
    ranks = [[seat["node"] for seat in sweep["ranks"]] for sweep in output["sweeps"]]
    assert ranks == [["localhost", "two"], ["localhost"] * 2, ["localhost"] * 2 + ["two"] * 2]
    narrow_plan = json.loads(
        cli("deploy", "bench", up.file, *SMALL, "--nodes", "2", "--dry-run", "--json").stdout
    )
    assert narrow_plan["points"] == 2


def test_a_dry_run_includes_the_time_of_slow_links(cli: Cli, up: Up) -> None:
    short = ("--gpu", "t4", "--batch", "32", "--time-per-point", "0.2 s", "--dry-run", "--json")

    def expected_seconds(*more: str) -> float:
        output = json.loads(cli("deploy", "bench", up.file, *short, *more).stdout)
        return float(output["expected_seconds"])

    # two of four points send 102 MB over 1 Gbit/s seven times; the one with four GPUs sends half as much again
    quick = 4 * (4 + 1 + 1.3 * 0.2)
    assert expected_seconds() > quick + 7 * 0.8 * (1 + 1.5) - 3
    # in one machine the link is unknown; some of a T4's six slowest steps take longer than a point should
    assert quick / 2 <= expected_seconds("--nodes", "1") < quick / 2 + 2


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("--link", "10 Gbit/s"), "1 Gbit/s"),
        (("--nodes", "3"), "expected 1 to 2 machines"),
        (("--data", "/elsewhere"), "/elsewhere is not in it"),
        (("--data", "../x"), "shared storage"),
        (("--workload", "resnet5"), "resnet50"),
    ],
)
def test_an_impossible_bench_is_reported_before_anything_runs(
    cli: Cli, up: Up, arguments: tuple[str, ...], expected: str
) -> None:
    assert expected in cli("deploy", "bench", up.file, "--gpu", "t4", *arguments, status=2).stderr


def test_images_are_made_in_the_shared_storage_and_read_by_every_rank(cli: Cli, up: Up) -> None:
    pytest.importorskip("PIL")
    small = ("--workload", "resnet18", "--gpu", "t4", "--batch", "4")
    narrow = (*small, "--nodes", "1")
    folder = up.shared / "gpuyard-images"
    planned = json.loads(cli("deploy", "bench", up.file, *narrow, "--dry-run", "--json").stdout)
    assert planned["images_folder"] == str(folder)
    assert not folder.exists()
    without = ("--data", "none", "--dry-run", "--json")
    assert (
        json.loads(cli("deploy", "bench", up.file, *narrow, *without).stdout)["images_folder"]
        is None
    )
    loaded = load_deployment(Path(up.file))
    options = BenchOptions(workload="resnet18", batches=(4,), nodes=(1,), gpu="t4")
    bench = plan_bench(loaded, loaded.state.hosts(), options, query_gpus=False)
    create_images(bench, 6)
    create_images(bench, 6)
    assert [path.name for path in folder.glob("*.tar")] == ["00000.tar"]
    samples = load_undecoded(bench.workload, synthetic_task(bench.workload, lambda _: 0.0))
    assert (samples.count, samples.data_source) == (6, f"{folder}, read, not decoded")


def test_the_reason_is_shown_if_the_head_cannot_create_images(cli: Cli, up: Up) -> None:
    (up.shared / "gpuyard-images").write_text("a file, not a folder")
    output = cli("deploy", "bench", up.file, "--gpu", "t4", "--batch", "4", status=1).stderr
    assert "localhost could not create images" in output
    assert "File exists" in output and "--data none" in output


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
    assert _choose_counts(3, None) == [1, 2, 3]
    assert _choose_counts(10, None) == [1, 2, 4, 6, 8, 10]
    with pytest.raises(UserMistake):
        _choose_counts(2, [0])
