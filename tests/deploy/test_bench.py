"""The bench of a deployment: its planned runs, and the link rates that it sets."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from gpuyard.deploy.bench.comparison import compare
from gpuyard.deploy.bench.data import create_images
from gpuyard.deploy.bench.place import DeployedHosts, LabMachines
from gpuyard.deploy.bench.plan import BenchOptions, Layout, _choose_counts, plan_bench
from gpuyard.deploy.deployment import load_deployment
from gpuyard.errors import UserMistake
from gpuyard.measure.training.matrix import MatrixResult
from gpuyard.report.answer import Sentence
from gpuyard.report.answers.deploy_bench import bench_answer
from gpuyard.workloads.samples import load_undecoded
from gpuyard.workloads.synthetic import synthetic_task
from tests.conftest import Cli, MakeMeasurement
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
        (("--dataset", "/elsewhere"), "/elsewhere is not in it"),
        (("--dataset", "../x"), "shared storage"),
        (("--workload", "resnet5"), "resnet50"),
        (("--shapes", "1x3"), "needs more than the deployment has: 2x2"),
        (("--shapes", "ten"), "like 1x10"),
        (("--shapes", "1x2", "--nodes", "1"), "not both"),
        (("--strategy", "horovd"), "horovod"),
        (("--strategy", "horovod"), "only on this machine and in labs"),
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
    without = ("--dataset", "none", "--dry-run", "--json")
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
    assert "File exists" in output and "--dataset none" in output


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


def test_one_machine_with_two_gpus_against_two_with_one_is_one_command(cli: Cli, up: Up) -> None:
    arguments = ("--gpu", "t4", "--batch", "32", "--shapes", "1x2,2x1", "--dry-run", "--json")
    output = json.loads(cli("deploy", "bench", up.file, *arguments).stdout)
    assert output["series"] == ["one machine", "one GPU of each machine"]
    ranks = [[seat["node"] for seat in sweep["ranks"]] for sweep in output["sweeps"]]
    assert ranks == [["localhost", "localhost"], ["localhost", "two"]]
    assert output["points"] == 2


def test_runs_that_this_host_limits_are_marked_and_the_origin_is_named(
    up: Up, make_measurement: MakeMeasurement
) -> None:
    loaded = load_deployment(Path(up.file))
    layouts = [Layout(1, 2), Layout(2, 1)]
    options = BenchOptions("resnet18", (32,), data="none", gpu="t4", layouts=layouts)
    bench = plan_bench(loaded, loaded.state.hosts(), options, query_gpus=False)
    busy_shares = (0.4, 0.97)
    runs = [
        make_measurement(
            number,
            key=sweep.points[0].key,
            workers=2,
            batch_per_worker=32,
            synthetic=sweep.synthetic,
            host_busy_share=busy,
        )
        for number, (sweep, busy) in enumerate(zip(bench.matrix.sweeps, busy_shares, strict=True))
    ]
    rows = compare(loaded, bench, runs)
    assert [row.saturates_host for row in rows] == [False, True]
    answer = bench_answer(bench, rows, MatrixResult(tuple(runs), ()))
    text = " ".join(part.text for part in answer.parts if isinstance(part, Sentence))
    assert "synthetic Tesla T4" in text and "measured 2026-01-02" in text
    assert "at least 97% busy in 1 of 2 runs" in text
    assert "Half of the other runs" in text
    ratio = rows[1].predicted.samples_per_second / rows[0].predicted.samples_per_second
    assert f"predicted to reach {ratio:.0%} of the speed of one machine with 2 GPUs" in text
    assert [run["saturates_host"] for run in answer.document["runs"]] == [False, True]

    idle = [run.model_copy(update={"host_busy_share": 0.4}) for run in runs]
    answer = bench_answer(bench, compare(loaded, bench, idle), MatrixResult(tuple(idle), ()))
    text = " ".join(part.text for part in answer.parts if isinstance(part, Sentence))
    assert "2 machines with one GPU each over 1 Gbit/s reach 100% of the speed" in text


def test_a_bench_without_a_valid_run_says_so_and_shows_no_empty_table(up: Up) -> None:
    loaded = load_deployment(Path(up.file))
    options = BenchOptions("resnet18", (32,), data="none", gpu="t4", layouts=[Layout(2, 1)])
    bench = plan_bench(loaded, loaded.state.hosts(), options, query_gpus=False)
    (sweep,) = bench.matrix.sweeps
    rejected = ((sweep, sweep.points[0], "other programs used 80% of the cores"),)
    answer = bench_answer(bench, [], MatrixResult((), rejected))
    (part,) = answer.parts
    assert isinstance(part, Sentence) and "other programs used 80%" in part.text
    assert "2 workers on 2 nodes, batch 32" in part.text
    assert (answer.document["runs"], answer.document["rejected"]) == ([], 1)


def test_horovod_needs_a_lab() -> None:
    assert DeployedHosts(("a", "b")).why_no_horovod is not None
    assert LabMachines(("a", "b")).why_no_horovod is None
    assert LabMachines(("a", "b")).host_cores


def test_numbers_of_machines_are_those_of_the_paper() -> None:
    assert _choose_counts(3, None) == [1, 2, 3]
    assert _choose_counts(10, None) == [1, 2, 4, 6, 8, 10]
    with pytest.raises(UserMistake):
        _choose_counts(2, [0])
