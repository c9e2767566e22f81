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
        "utilization", "gpu_hours",
    }  # fmt: skip
    assert document["gpus"] == 64


def test_the_best_policy_is_named_and_comes_first(cli: Cli) -> None:
    done = cli("simulate", TEAM, "--on", "2x4", "--policy", "fifo,min-time")
    assert all(words in done.stdout for words in ("10 jobs", "8 GPUs", "2 machines"))
    assert "min-time has the lowest" in done.stdout
    rows = [line.split("│")[1].strip() for line in done.stdout.splitlines() if line.startswith("│")]
    assert rows == ["min-time", "fifo"]
    assert "of 7" in done.stdout, "deadlines"


def test_equal_policies_are_named_together(cli: Cli, tmp_path: Path) -> None:
    trace = tmp_path / "one.csv"
    trace.write_text("name,submit_s,gpus,duration_s\na,0,1,60\n")
    output = " ".join(
        cli("simulate", str(trace), "--on", "1x4", "--policy", "fifo,shortest-first").stdout.split()
    )
    assert "fifo and shortest-first" in output
    assert "1.00 min" in output


def test_a_page_has_charts_and_a_gantt_of_each_policy(cli: Cli, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    cli("simulate", TEAM, "--on", "2x4", "--html", str(page))
    text = page.read_text()
    assert "chart-completion" in text
    assert "chart-use" in text
    assert "Jobs under fifo" in text
    assert "Jobs under min-time" in text
    assert "bert-large: 8 GPUs" in text


RACKS = """\
name: two racks
nodes: 4
nodes_per_rack: 2
machine: {gpu: t4, gpus: 4}
network: {rate: 10 Gbit/s, oversubscription: 4}
"""
# "small" ends first: then each rack has four GPUs for "wide", which wants eight
BOTH = """\
id,submit_s,gpus,work,curve
long,0,4,2000000,resnet50
small,0,4,10000,resnet50
held,0,4,2000000,resnet50
wide,1,8,4000000,resnet50
"""


def test_a_job_that_leaves_its_rack_is_slower_where_racks_are_oversubscribed(
    cli: Cli, tmp_path: Path
) -> None:
    (tmp_path / "jobs.csv").write_text(BOTH)
    cluster = tmp_path / "my.cluster.yaml"

    def completion(racks: str) -> float:
        cluster.write_text(racks)
        options = ("--on", str(cluster), "--policy", "fifo", "--json")
        done = cli("simulate", str(tmp_path / "jobs.csv"), *options)
        return float(json.loads(done.stdout)["policies"][0]["makespan_seconds"])

    one_switch = completion(RACKS.replace("oversubscription: 4", "oversubscription: 1"))
    in_racks = completion(RACKS)
    assert in_racks > 1.5 * one_switch
    assert in_racks < completion(RACKS.replace("nodes_per_rack: 2\n", "")) * 1.001


def test_a_larger_cluster_is_faster(cli: Cli) -> None:
    def mean(cluster: str) -> float:
        done = cli("simulate", TEAM, "--on", cluster, "--policy", "fifo", "--json")
        return float(json.loads(done.stdout)["policies"][0]["mean_completion_seconds"])

    assert mean("4x4") < mean("2x4")
    assert mean("examples/rack.cluster.yaml") < mean("2x4")


def test_the_batch_may_be_chosen(cli: Cli) -> None:
    done = cli("simulate", POLLUX, "--batch-choice", "adaptive", "--policy", "min-time", "--json")
    (row,) = json.loads(done.stdout)["policies"]
    assert row["mean_completion_seconds"] < 2446  # what Pollux takes


def test_leases_are_a_trace_too(cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GPUYARD_SHARE_DIR", str(tmp_path / "share"))
    cli("share", "setup", "--fake-gpus", "4", "--no-service")
    done = cli("simulate", "--format", "leases", status=2)
    assert "no finished lease" in done.stderr
    for _ in range(2):
        cli("lease", "2", "--", "true")
    document = json.loads(cli("simulate", "--format", "leases", "--json").stdout)
    assert (document["jobs"], document["gpus"]) == (2, 4)
    done = cli("simulate", "--format", "leases", "--what-if", "add 2 gpus", "--json")
    document = json.loads(done.stdout)
    assert [row["gpus"] for row in document["what_if"]] == [4, 6]
    assert 0 <= document["recorded_mean_wait_seconds"] < 60
    recent = ("simulate", "--format", "leases", "--since", "1 day", "--json")
    assert json.loads(cli(*recent).stdout)["jobs"] == 2
    before = cli("simulate", "--format", "leases", "--until", "1 day", status=2)
    assert "no finished lease" in before.stderr


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("simulate", "TRACE is missing"),
        (f"simulate {TEAM}", "--on 16x4"),
        (f"simulate {TEAM} --on 1x4", "'gnmt' needs 8 GPUs"),
        (f"simulate {TEAM} --on 2x4 --policy min-tim", "did you mean 'min-time'"),
        (f"simulate {TEAM} --on 2x4 --policy ,", "like min-time,fifo"),
        (f"simulate {TEAM} --on 2x4 --format xml", "'xml'"),
        (f"simulate {TEAM} --on 2x4 --batch-choice user --traces .", "--format pollux"),
        (f"simulate {POLLUX} --batch-choice adaptiv", "'adaptive'"),
        (f"simulate {TEAM} --format leases", "leave out TRACE"),
        (f"simulate {TEAM} --on 2x4 --since 2026-01-01", "--format leases"),
        (
            "simulate README.md --on 2x4",
            "README.md:1: expected the column names",
        ),
        ("simulate nowhere.csv --on 2x4", "nowhere.csv"),
    ],
)
def test_a_mistake_is_explained(cli: Cli, line: str, words: str) -> None:
    done = cli(*line.split(), status=2)
    assert words in done.stderr


def test_changes_are_compared_with_the_trace_as_it_is(cli: Cli) -> None:
    done = cli(
        "simulate", TEAM, "--on", "2x4", "--what-if", "add 8 gpus",
        "--what-if", "policy=min-time", "--what-if", "add 4 gpus, policy=max-jobs", "--json",
    )  # fmt: skip
    document = json.loads(done.stdout)
    cases = document["what_if"]
    assert [(row["case"], row["gpus"], row["policy"]) for row in cases] == [
        ("as it is", 8, "fifo"),
        ("add 8 gpus", 16, "fifo"),
        ("policy=min-time", 8, "min-time"),
        ("add 4 gpus, policy=max-jobs", 12, "max-jobs"),
    ]
    means = [row["mean_completion_seconds"] for row in cases]
    assert max(means[1:]) < means[0]
    assert document["recorded_mean_wait_seconds"] is None
    assert [row["policy"] for row in document["policies"]] == [row["policy"] for row in cases]


def test_another_network_is_predicted_for_a_workload(cli: Cli) -> None:
    done = cli(
        "simulate", TEAM, "--on", "4x2xv100-sxm2-16gb@1G", "--what-if", "network 25 Gbit/s",
        "--workload", "bert-large",
    )  # fmt: skip
    assert "network 25 Gbit/s: " in " ".join(done.stdout.split())
    assert "assumed to train bert-large" in " ".join(done.stdout.split())


def test_a_trace_with_workloads_needs_no_workload_option(cli: Cli, tmp_path: Path) -> None:
    jobs = tmp_path / "jobs.csv"
    jobs.write_text(
        "submit_s,gpus,min_gpus,max_gpus,duration_s,curve\n"
        "0,8,1,8,3600,vgg16\n0,8,1,8,3600,resnet50\n"
    )
    cluster = ("--on", "4x2xv100-sxm2-16gb@1G", "--what-if", "network 25 Gbit/s")
    document = json.loads(cli("simulate", str(jobs), *cluster, "--json").stdout)
    now, then = document["what_if"]
    assert then["makespan_seconds"] < 0.8 * now["makespan_seconds"]
    done = cli("simulate", TEAM, *cluster, status=2)
    assert "--workload resnet50" in done.stderr


def test_a_history_is_compared_with_reality(cli: Cli, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    history = str(ROOT / "tests/jobs/simulate/recorded/sacct-22.05.txt")
    done = cli(
        "simulate", history, "--on", "2x4", "--what-if", "remove 1 gpu", "--html", str(page)
    , status=2)  # fmt: skip
    assert "8 GPUs" in done.stderr
    assert "has 7" in done.stderr
    done = cli(
        "simulate", history, "--on", "2x4", "--what-if", "add 1 machine", "--html", str(page)
    )
    output = " ".join(done.stdout.split())
    assert "jobs waited 1.45 min on average" in output
    assert "under fifo, they wait 1.34 min" in output
    assert "instead of 2.06 min" in output
    assert "chart-completion" in page.read_text()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--what-if", "more"), "--what-if: expected 'add 8 gpus'"),
        (("--what-if", "network 25 Gbit/s"), "--workload resnet50"),
        (("--what-if", "add 1 gpu", "--policy", "fifo,min-time"), "--what-if policy=NAME"),
        (("--what-if", "add 1 gpu", "--workload", "resnet50"), "--workload is only for --what-if"),
        (("--workload", "resnet50"), "--workload is only for --what-if"),
    ],
)
def test_a_mistake_in_what_if_is_explained(
    cli: Cli, arguments: tuple[str, ...], words: str
) -> None:
    done = cli("simulate", TEAM, "--on", "2x4", *arguments, status=2)
    assert words in " ".join(done.stderr.split())


def test_invented_deadlines_and_the_policy_that_meets_the_most(cli: Cli) -> None:
    arguments = ("simulate", POLLUX, "--policy", "min-time,max-jobs,fifo", "--deadlines", "1..3")
    document = json.loads(cli(*arguments, "--json").stdout)
    soon, in_time, fifo = document["policies"]
    assert in_time["deadlines_met"] > soon["deadlines_met"] > fifo["deadlines_met"] > 0
    assert in_time["deadlines"] == 160
    assert soon["mean_completion_seconds"] < in_time["mean_completion_seconds"]
    assert json.loads(cli(*arguments, "--json").stdout) == document, "always the same deadlines"
    done = cli("simulate", POLLUX, "--deadlines", "3..1", status=2)
    assert "--deadlines: " in done.stderr
    assert "like 1..3, got '3..1'" in done.stderr
    team = cli("simulate", TEAM, "--on", "2x4", "--policy", "max-jobs,fifo")
    assert "max-jobs meets the most" in team.stdout
    assert "7 of 7" in team.stdout


def test_a_horizon_is_the_deadline_of_all_earlier_jobs(cli: Cli) -> None:
    arguments = ("simulate", TEAM, "--on", "2x4", "--policy", "max-jobs,fifo", "--json")
    most, fifo = json.loads(cli(*arguments, "--deadlines", "1 h").stdout)["policies"]
    assert most["deadlines"] == 7, "gnmt is submitted at that time"
    assert most["deadlines_met"] > fifo["deadlines_met"]
    done = cli(*arguments, "--deadlines", "8", status=2)
    assert "'8' has no unit" in done.stderr


def test_a_job_that_requests_too_much_gets_all_gpus(cli: Cli) -> None:
    document = json.loads(
        cli("simulate", POLLUX, "--on", "2x4", "--policy", "fifo", "--json").stdout
    )
    assert document["policies"][0]["mean_completion_seconds"] > 0
