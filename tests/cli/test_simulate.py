"""`gpuyard simulate`, as users type it."""

import json
import shutil
from pathlib import Path

import pytest

from tests.command_line import ROOT
from tests.conftest import Cli

TRACES = ROOT / "examples/traces"
POLLUX = str(TRACES / "pollux/workload-6.csv")
TEAM = str(TRACES / "team.csv")


def test_the_fixed_interface(cli: Cli, tmp_path: Path) -> None:
    jobs = tmp_path / "jobs.csv"  # away from the measurements
    shutil.copyfile(POLLUX, jobs)
    done = cli(
        "simulate", str(jobs), "--format", "pollux", "--traces", str(TRACES / "pollux"),
        "--policy", "tiresias,min-time", "--json",
    )  # fmt: skip
    document = json.loads(done.stdout)
    assert [row["policy"] for row in document["policies"]] == ["tiresias", "min-time"]
    tiresias, ours = document["policies"]
    assert tiresias["mean_completion_seconds"] == pytest.approx(3470, rel=0.05)
    assert ours["mean_completion_seconds"] < tiresias["mean_completion_seconds"]
    assert set(ours) >= {
        "makespan_seconds", "median_completion_seconds", "p99_completion_seconds", "deadlines_met",
        "utilisation", "gpu_hours",
    }  # fmt: skip
    assert document["gpus"] == 64


def test_the_best_is_said_and_comes_first(cli: Cli) -> None:
    done = cli("simulate", TEAM, "--cluster", "2x4", "--policy", "fifo,min-time")
    assert "10 jobs of team on 8 GPUs in 2 machines" in done.stdout
    assert "min-time has the lowest mean completion time" in done.stdout
    rows = [line.split("│")[1].strip() for line in done.stdout.splitlines() if line.startswith("│")]
    assert rows == ["min-time", "fifo"]
    assert "of 7" in done.stdout, "deadlines"


def test_a_page_has_charts_and_a_gantt_of_each_policy(cli: Cli, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    cli("simulate", TEAM, "--cluster", "2x4", "--html", str(page))
    text = page.read_text()
    assert "chart-completion" in text
    assert "chart-use" in text
    assert "Jobs under fifo" in text
    assert "Jobs under min-time" in text
    assert "bert-large: 8 GPUs" in text


def test_a_larger_cluster_is_faster(cli: Cli) -> None:
    def mean(cluster: str) -> float:
        done = cli("simulate", TEAM, "--cluster", cluster, "--policy", "fifo", "--json")
        return float(json.loads(done.stdout)["policies"][0]["mean_completion_seconds"])

    assert mean("4x4") < mean("2x4")
    assert mean("examples/rack.cluster.yaml") < mean("2x4")


def test_the_batch_may_be_chosen(cli: Cli) -> None:
    done = cli("simulate", POLLUX, "--batch", "adaptive", "--policy", "min-time", "--json")
    (row,) = json.loads(done.stdout)["policies"]
    assert row["mean_completion_seconds"] < 2446  # what Pollux takes


def test_leases_are_a_trace_too(cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GPUYARD_SHARE_DIR", str(tmp_path / "share"))
    cli("share", "setup", "--fake-gpus", "4", "--no-service")
    done = cli("simulate", "--format", "leases", status=2)
    assert "no lease of this machine is over yet" in done.stderr
    for _ in range(2):
        cli("lease", "2", "--", "true")
    document = json.loads(cli("simulate", "--format", "leases", "--json").stdout)
    assert (document["jobs"], document["gpus"]) == (2, 4)


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("simulate", "name a TRACE"),
        (f"simulate {TEAM}", "name the machines: --cluster 16x4"),
        (f"simulate {TEAM} --cluster 1x4", "job 'gnmt' needs 8 GPUs, the cluster has 4"),
        (f"simulate {TEAM} --cluster 2x4 --policy min-tim", "did you mean 'min-time'"),
        (f"simulate {TEAM} --cluster 2x4 --policy ,", "expected names like min-time,fifo"),
        (f"simulate {TEAM} --cluster 2x4 --format xml", "no format is called 'xml'"),
        (f"simulate {TEAM} --cluster 2x4 --batch user --traces .", "are for the format pollux"),
        (f"simulate {POLLUX} --batch adaptiv", "did you mean 'adaptive'"),
        (f"simulate {TEAM} --format leases", "leave out TRACE"),
        ("simulate README.md --cluster 2x4", "README.md:1: these are the columns of no trace"),
        ("simulate nowhere.csv --cluster 2x4", "nowhere.csv: there is no such file"),
    ],
)
def test_what_is_wrong_is_a_sentence(cli: Cli, line: str, says: str) -> None:
    done = cli(*line.split(), status=2)
    assert says in done.stderr
