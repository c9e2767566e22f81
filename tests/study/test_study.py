"""Studies end to end: a study file in, a report and a document out, on real training runs."""

import json
import re
from pathlib import Path

import pytest

from gpuyard.measure.store import ResultsStore
from gpuyard.measure.training import size
from gpuyard.measure.training.records import Measurement
from gpuyard.report.figures.marks import SeriesStyle
from gpuyard.report.figures.scaling import build_throughput_chart
from gpuyard.study import parse_study_result
from tests.conftest import Cli

MODEL = """\
from torch import nn


def wide():
    return nn.Sequential(nn.Flatten(), nn.Linear(4096, 512), nn.ReLU(), nn.Linear(512, 10))
"""
WORKLOAD = """\
name: wide
model: own_model:wide
batch_per_gpu: 8
dataset: {samples: 512}
input: {shape: [4096]}
target: {classes: 10}
"""
STUDY = """\
name: A model of my own
workloads: [wide.workload.yaml]
measure: {workers: [1, 2], batch: [4, 8], time_per_point: 300 ms}
clusters:
  - cluster:
      name: two nodes
      nodes: 2
      machine: {gpu: t4, gpus: 4}
      network: {rate: 1 Gbit/s}
    gpus: [1, 4, 8]
epoch_batches: [4, 8, 16]
cost: {rent: $1.50/h, buy: $8000, speed_lead: 30%}
"""

PLAN = """\
name: a team
workload: {name: r, model: resnet50, precision: fp16, dataset: {samples: 1281167}, epochs: 90}
runs_per_month: 20
time_per_run: 8 h
search: {gpus: [a100-sxm4-80gb], nodes: [1]}
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    directory = tmp_path / "project"
    directory.mkdir()
    (directory / "own_model.py").write_text(MODEL)
    (directory / "wide.workload.yaml").write_text(WORKLOAD)
    (directory / "wide.study.yaml").write_text(STUDY)
    return directory


def test_a_study_of_a_custom_model(cli: Cli, project: Path, home: Path) -> None:
    done = cli("study", "wide.study.yaml", "--output-dir", "out", cwd=project)
    assert "CHOKE" in done.stdout
    assert "report: out/report.html" in done.stdout
    result = parse_study_result((project / "out" / "study.json").read_text(encoding="utf-8"))
    (workload,) = result.workloads
    assert workload.parameters == 4096 * 512 + 512 + 512 * 10 + 10
    assert {(m.workers, m.batch_per_worker) for m in workload.measured} == {
        (1, 4),
        (1, 8),
        (2, 4),
        (2, 8),
    }
    assert {curve.platform for curve in workload.curves} == {"this machine", "two nodes"}
    # 8.4 MB over 1 Gbit/s takes longer than a few µs of arithmetic
    there = next(f for f in workload.verdict.findings if f.platform == "two nodes")
    assert there.choke == "network"
    assert there.remedies
    epochs = {(e.platform, e.gpus, e.batch_per_gpu, e.basis) for e in workload.epoch_times}
    assert ("this machine", 1, 16, "fitted") in epochs
    assert ("this machine", 2, 8, "measured") in epochs
    assert ("two nodes", 8, 16, "predicted") in epochs
    assert result.cost is not None
    assert result.cost.break_even_hours == pytest.approx(3733.3, abs=0.1)
    stored = {m.id for m in ResultsStore(home / "results.sqlite").records(Measurement)}
    assert {m.measurement_id for m in workload.measured} == stored

    again = cli("study", "wide.study.yaml", "--output-dir", "out", "--json", cwd=project)
    repeated = json.loads(again.stdout)["workloads"][0]["measured"]
    assert {m["measurement_id"] for m in repeated} == stored  # nothing was measured twice

    # doubtful runs are reported in the terminal, the document, and the page
    store = ResultsStore(home / "results.sqlite")
    busy = "other programs used 40% of the cores"
    doubtful = store.records(Measurement)[0].model_copy(update={"id": "d0", "doubt": busy})
    store.add(doubtful)
    warned = cli("study", "wide.study.yaml", "--output-dir", "out", cwd=project)
    document = json.loads((project / "out" / "study.json").read_text(encoding="utf-8"))
    runs = document["workloads"][0]["measured"]
    doubts = [run for run in runs if run["doubt"]]  # more than this one on a busy machine
    assert busy in [run["doubt"] for run in doubts if run["measurement_id"] == "d0"]
    (note,) = [n for n in document["notes"] if n.startswith("Doubtful") and "wide" in n]
    assert doubts[0]["doubt"] in note
    assert note in warned.stdout
    assert note in (project / "out" / "report.html").read_text(encoding="utf-8")

    # a verdict never relies on doubtful runs alone
    for i, measured in enumerate(store.records(Measurement)):
        store.add(measured.model_copy(update={"id": f"e{i}", "doubt": busy}))
    (project / "alone.study.yaml").write_text(STUDY[: STUDY.index("clusters")])
    alone = cli("study", "alone.study.yaml", "--output-dir", "out", cwd=project)
    assert "EVIDENCE: measure again" in alone.stdout
    assert alone.stdout.count("Doubtful: ") == 1
    assert f"{len(runs)} of {len(runs)} runs of wide" in alone.stdout
    both = json.loads(cli("study", "wide.study.yaml", "--json", cwd=project).stdout)
    (verdict,) = [workload["verdict"] for workload in both["workloads"]]
    assert verdict["choke"] == "network"
    here, _there = verdict["findings"]
    assert here["doubt"] == busy
    assert "4 doubtful" not in both["workloads"][0]["curves"][1]["basis"]
    assert "2 doubtful runs with 1 worker" in both["workloads"][0]["curves"][0]["basis"]


def test_a_mistake_in_a_named_file_is_found_before_anything_is_measured(
    cli: Cli, project: Path, home: Path
) -> None:
    path = project / "wide.study.yaml"
    path.write_text(STUDY.replace("gpu: t4", "gpu: t44"))
    done = cli("study", "wide.study.yaml", cwd=project, status=2)
    assert "wide.study.yaml:8: clusters[0].cluster.machine.gpu: " in done.stderr
    assert "'t44'" in done.stderr
    path.write_text(STUDY.replace("[1, 4, 8]", "[1, 16]"))
    done = cli("study", "wide.study.yaml", cwd=project, status=2)
    assert "16 GPUs" in done.stderr
    assert "4 nodes" in done.stderr
    assert not (home / "results.sqlite").exists()
    assert not (project / "study").exists()


@pytest.mark.parametrize(
    ("before", "after", "parts"),
    [
        ("[wide.workload.yaml]", "[resnet5]", ("wide.study.yaml:2: workloads[0]: ", "'resnet5'")),
        ("time_per_point: 300 ms", "strategy: parameter-server", ("wide.study.yaml:3: measure.strategy: ", "ddp", "dataparallel", "horovod")),
        ("[wide.workload.yaml]", "[wide.workload.yaml, wide.workload.yaml]", ("two workloads", "'wide'")),
    ],
)  # fmt: skip
def test_errors_name_the_line_and_the_wrong_name(
    cli: Cli, project: Path, before: str, after: str, parts: tuple[str, ...]
) -> None:
    (project / "wide.study.yaml").write_text(STUDY.replace(before, after))
    stderr = cli("study", "wide.study.yaml", cwd=project, status=2).stderr
    assert all(part in stderr for part in parts), stderr


def test_a_machine_with_fewer_cores_measures_fewer_workers_and_reports_it(
    cli: Cli, project: Path
) -> None:
    (project / "wide.study.yaml").write_text(STUDY.replace("workers: [1, 2]", "workers: [1, 4096]"))
    done = cli("study", "wide.study.yaml", cwd=project)
    assert "Not measured with 4096 workers" in done.stdout


def test_an_output_that_cannot_be_written_is_an_error_before_measuring(
    cli: Cli, project: Path, home: Path
) -> None:
    (project / "taken").write_text("a file")
    done = cli("study", "wide.study.yaml", "--output-dir", "taken/out", cwd=project, status=2)
    assert "taken" in done.stderr
    assert not (home / "results.sqlite").exists()


def test_one_cluster_in_two_ways_has_two_names(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "p.study.yaml").write_text(
        "name: plan\nworkloads: [resnet50]\nmeasure: null\nclusters:\n"
        "  - {cluster: dgx-a100, gpus: [1, 8]}\n"
        "  - {cluster: dgx-a100, gpus: [1, 8], exchange: {compress: fp16, bucket: 50 MiB}}\n"
    )
    cli("study", "p.study.yaml", cwd=tmp_path)
    study = json.loads((tmp_path / "study" / "study.json").read_text())
    plain, less = study["workloads"][0]["curves"]
    assert plain["platform"].endswith("(ddp)")
    assert less["platform"].endswith("(ddp, fp16, buckets of 50 MiB)")
    assert less["predictions"][1]["compress"] == "fp16"


ELSEWHERE = """\
name: elsewhere
workloads: [{workload: inception-v3, batch: [4, 8]}]
measure: null
clusters:
  - {cluster: 2x4xgtx-1080-ti@10G, gpus: [1, 4, 8]}
"""


def test_clusters_are_predicted_at_the_workloads_batch_or_their_own(
    cli: Cli, tmp_path: Path
) -> None:
    own = ELSEWHERE + "  - {cluster: dgx-h100, gpus: [1, 8], batch: 256}\n"
    (tmp_path / "p.study.yaml").write_text(own)
    done = json.loads(cli("study", "p.study.yaml", "--json", cwd=tmp_path).stdout)
    workload = done["workloads"][0]
    assert workload["batch_per_gpu"] == 32
    batches = [{p["batch_per_gpu"] for p in curve["predictions"]} for curve in workload["curves"]]
    assert batches == [{32}, {256}]
    (tmp_path / "p.study.yaml").write_text(own.replace("256", "0"))
    wrong = cli("study", "p.study.yaml", cwd=tmp_path, status=2)
    assert "p.study.yaml:6: clusters[1].batch: " in wrong.stderr


def test_a_study_and_why_agree_on_the_knee(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "p.study.yaml").write_text(ELSEWHERE)
    output = cli("study", "p.study.yaml", cwd=tmp_path).stdout
    arguments = ("inception-v3", "--on", "2x4xgtx-1080-ti@10G", "--gpus", "8", "--why")
    why = json.loads(cli("predict", *arguments, "--json", cwd=tmp_path).stdout)["why"]
    # arithmetic is the largest part, but the second machine is not worth it: both name the network
    assert why["knee"]["current"]["gpus"] == 4 and why["choke"] == "network"
    assert "NETWORK CHOKE: don't add GPUs" in output
    (knee,) = [sentence for sentence in why["sentences"] if sentence.startswith("The knee is at")]
    assert knee in output


def test_a_cluster_that_does_not_fit_has_no_vote(cli: Cli, tmp_path: Path) -> None:
    text = ELSEWHERE.replace("inception-v3", "gpt2").replace("[1, 4, 8]", "[1, 4, 8], batch: 32")
    (tmp_path / "p.study.yaml").write_text(text)
    output = cli("study", "p.study.yaml", cwd=tmp_path).stdout
    assert "gpt2: DOES NOT FIT" in output
    assert "a batch of 32 needs" in output
    assert "would help: a batch of" in output
    page = (tmp_path / "study" / "report.html").read_text(encoding="utf-8")
    assert "chart-throughput-gpt2" not in page  # it cannot run, so there is nothing to draw
    (tmp_path / "p.study.yaml").write_text(text + "  - {cluster: dgx-h100, gpus: [1, 8]}\n")
    assert "gpt2: GPU CHOKE" in cli("study", "p.study.yaml", cwd=tmp_path).stdout


def test_a_study_that_measures_nothing_has_a_note(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "p.study.yaml").write_text(
        "name: plan\nworkloads: [bert-large]\nmeasure: null\nclusters: [{cluster: dgx-h100, gpus: [1, 8]}]\n"
    )
    done = cli("study", "p.study.yaml", cwd=tmp_path)
    assert "measures nothing here" in done.stdout
    assert (tmp_path / "study" / "report.html").exists()


def test_a_study_with_a_plan_has_its_front_in_the_report(cli: Cli, project: Path) -> None:
    (project / "team.plan.yaml").write_text(PLAN)
    (project / "wide.study.yaml").write_text(
        "name: x\nworkloads: [resnet50]\nmeasure: null\nplan: team.plan.yaml\n"
    )
    cli("study", "wide.study.yaml", "--output-dir", "out", cwd=project)
    result = parse_study_result((project / "out" / "study.json").read_text(encoding="utf-8"))
    assert result.plan is not None and result.plan.winner is not None
    assert 'id="chart-plan"' in (project / "out" / "report.html").read_text(encoding="utf-8")


def test_a_mistake_in_the_plan_is_found_before_anything_is_measured(
    cli: Cli, project: Path
) -> None:
    (project / "team.plan.yaml").write_text(PLAN.replace("8 h", "8"))
    with (project / "wide.study.yaml").open("a") as file:
        file.write("plan: team.plan.yaml\n")
    done = cli("study", "wide.study.yaml", "--output-dir", "out", cwd=project, status=2)
    assert "team.plan.yaml:4: time_per_run" in done.stderr
    assert not (project / "out").exists()


def test_if_two_clusters_intervals_overlap_the_deciding_run_is_named(
    cli: Cli, tmp_path: Path
) -> None:
    def run_with(second: str) -> tuple[str | None, str]:
        (tmp_path / "p.study.yaml").write_text(
            "name: p\nworkloads: [resnet50]\nmeasure: null\nclusters:\n"
            f"  - {{cluster: dgx-a100, gpus: [1, 8]}}\n  - {{cluster: {second}, gpus: [1, 8]}}\n"
        )
        output = cli("study", "p.study.yaml", cwd=tmp_path).stdout
        study = json.loads((tmp_path / "study" / "study.json").read_text())
        return study["workloads"][0]["open_choice"], " ".join(output.split())

    choice, output = run_with("1x8xa100-sxm4-80gb")
    assert choice is not None
    assert "DGX A100" in choice and "8 × A100 SXM4 80 GB" in choice
    assert re.search(r"one-minute run on .* from ±\d+% to ±\d+%", choice)
    assert choice in output
    choice, output = run_with("1x8xk80")
    assert choice is None and "overlap" not in output


def test_without_a_number_all_gpus_of_a_cluster_are_tried_and_old_ones_are_noted(
    cli: Cli, tmp_path: Path
) -> None:
    (tmp_path / "p.study.yaml").write_text(
        "name: p\nworkloads: [resnet50]\nmeasure: null\n"
        "clusters: [{cluster: 4x4xgtx-1080-ti@10G}, {cluster: rtx-4090}, {cluster: 6xrtx-4090}]\n"
    )
    output = cli("study", "p.study.yaml", cwd=tmp_path).stdout
    study = json.loads((tmp_path / "study" / "study.json").read_text())
    tried = [[p["gpus"] for p in c["predictions"]] for c in study["workloads"][0]["curves"]]
    assert tried == [[1, 2, 4, 8, 16], [1], [1, 2, 4, 6]]
    assert "Pascal" in output


def test_a_model_too_large_for_this_machine_is_only_predicted_with_a_note(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(size, "free_memory_bytes", lambda: 60e9)
    (tmp_path / "xl.study.yaml").write_text(
        "name: x\nworkloads: [gpt2-xl]\nclusters: [{cluster: dgx-h100, gpus: [1, 8]}]\n"
    )
    done = cli("study", "xl.study.yaml", "--json", cwd=tmp_path)
    (note,) = [note for note in json.loads(done.stdout)["notes"] if "not measured here" in note]
    assert "1 worker at a batch of 10 needs about" in note
    assert "60 GB" in note
    assert "measure: {workers: [1], batch: [" in note
    assert json.loads(done.stdout)["workloads"][0]["measured"] == []


def test_slow_runs_that_the_file_does_not_request_are_skipped(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(size, "free_memory_bytes", lambda: 1e15)
    monkeypatch.setattr(size, "_CORE_FLOPS", 1.0)
    (tmp_path / "slow.study.yaml").write_text("name: x\nworkloads: [resnet50]\n")
    done = cli("study", "slow.study.yaml", cwd=tmp_path)
    assert "resnet50 is not measured here" in done.stdout
    assert "takes about" in done.stdout


def test_only_batches_that_fit_are_measured(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(size, "free_memory_bytes", lambda: 3e9)
    (tmp_path / "some.study.yaml").write_text(
        "name: x\nworkloads: [spoken-digits-linear]\n"
        "measure: {workers: [1], batch: [4, 1000000], time_per_point: 100 ms}\n"
    )
    done = cli("study", "some.study.yaml", "--json", cwd=tmp_path)
    document = json.loads(done.stdout)
    assert [m["batch_per_worker"] for m in document["workloads"][0]["measured"]] == [4]
    assert any("1 worker at a batch of 1000000" in note for note in document["notes"])
    assert "Measuring 1 run" in done.stderr


def test_hardly_any_scaling_is_a_number_and_its_band_is_drawn_whole(
    cli: Cli, tmp_path: Path
) -> None:
    (tmp_path / "slow.study.yaml").write_text(
        "name: x\nworkloads: [spoken-digits-linear]\nmeasure: null\n"
        "clusters: [{cluster: dgx-h100}, {cluster: 8x1xgtx-1080-ti@1G}]\n"
    )
    result = parse_study_result(cli("study", "slow.study.yaml", "--json", cwd=tmp_path).stdout)
    (workload,) = result.workloads
    sentences = " ".join(finding.sentence for finding in workload.verdict.findings)
    assert "do the work of 0.0 " not in sentences
    assert "(0% efficiency)" not in sentences
    looks = {curve.platform: SeriesStyle("#000000", "circle") for curve in workload.curves}
    axis = build_throughput_chart(workload, workload.batch_per_gpu or 0, looks)["yAxis"]
    assert axis["min"] <= min(p.low for curve in workload.curves for p in curve.predictions)
