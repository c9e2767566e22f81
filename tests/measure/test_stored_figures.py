"""Stored multi-GPU runs become figures that predictions use, with their source."""

import json
from pathlib import Path

import pytest

from gpuyard.catalog import models
from gpuyard.deploy.bench.place import DeployedHosts
from gpuyard.measure.calibration import build_calibration_rows
from gpuyard.measure.store import ResultsStore
from gpuyard.measure.stored_figures import StoredRuns
from gpuyard.measure.training.records import Measurement
from gpuyard.run.places.place import RunPlace
from gpuyard.specs import ExchangeOptions, KnownThroughput, Workload
from tests.conftest import Cli, MakeMeasurement

SPEC = {"name": "mine", "model": "resnet50", "precision": "fp16", "batch_per_gpu": 64}
WORKLOAD = Workload.model_validate(SPEC)
PROFILE = models().get("resnet50")


def run(
    make: MakeMeasurement, number: int = 1, rate: float = 6000.0, **changed: object
) -> Measurement:
    """Eight V100 of one machine."""
    plain = make(number)
    there = plain.provenance.model_copy(update={"gpus": ("Tesla V100-SXM2-16GB",) * 8})
    step = 8 * 64 / rate
    windows = tuple(
        w.model_copy(update={"steps": 10, "seconds": 10 * step}) for w in plain.windows * 6
    )
    return plain.model_copy(
        update={"spec": SPEC, "workers": 8, "batch_per_worker": 64, "device": "cuda", "provenance": there,
                "samples_per_second": rate, "low": rate * 0.99, "high": rate * 1.01, "windows": windows,
                "all_reduce_bytes": None, **changed}
    )  # fmt: skip


def figures(*runs: Measurement, workload: Workload = WORKLOAD) -> tuple[KnownThroughput, ...]:
    return StoredRuns(runs).add_figures(workload, PROFILE).measured


def test_a_run_becomes_a_figure_with_its_source(make_measurement: MakeMeasurement) -> None:
    (figure,) = figures(run(make_measurement))
    assert (figure.gpu, figure.gpus, figure.nodes, figure.batch_per_gpu) == (
        "v100-sxm2-16gb",
        8,
        1,
        64,
    )
    assert (figure.samples_per_second, figure.precision) == (6000.0, "fp16")
    assert figure.source == "run 00000000 of 2026-01-02 on here"


def test_a_run_on_deployed_machines_is_stored_with_their_gpus(
    make_measurement: MakeMeasurement,
) -> None:
    deployed = DeployedHosts(
        ("head", "gpu1"),
        slots=(8, 8),
        gpus=(("Tesla V100-SXM2-16GB",) * 8,) * 2,
        link_bytes_per_second=1.25e9,
    )
    laptop = run(make_measurement).provenance.model_copy(update={"gpus": ()})
    (figure,) = figures(
        run(make_measurement, place=deployed.record(16), workers=16, provenance=laptop)
    )
    assert (figure.gpu, figure.gpus, figure.nodes) == ("v100-sxm2-16gb", 16, 2)
    assert figure.network == 1.25e9
    assert figure.source == "run 00000000 of 2026-01-02 on head, gpu1"


def test_runs_of_one_configuration_are_one_figure_and_the_workloads_own_comes_first(
    make_measurement: MakeMeasurement,
) -> None:
    runs = [run(make_measurement, n, rate) for n, rate in ((1, 6000.0), (2, 5800.0), (3, 6050.0))]
    (figure,) = figures(*runs)
    assert figure.samples_per_second == 6000.0
    assert str(figure.source).startswith("the median of 3 runs, the last run ")
    own = KnownThroughput(gpu="v100-sxm2-16gb", gpus=8, batch_per_gpu=64, samples_per_second=5000.0)
    assert figures(*runs, workload=WORKLOAD.model_copy(update={"measured": (own,)})) == (own,)


def test_runs_that_differ_or_are_doubtful_are_ignored(
    make_measurement: MakeMeasurement, tmp_path: Path
) -> None:
    others = [
        run(make_measurement, 1, spec=SPEC | {"model": "vgg16"}),
        run(make_measurement, 2, strategy="horovod"),
        run(make_measurement, 3, remedy=ExchangeOptions(compress="fp16")),
        run(make_measurement, 4, device="cpu"),
        run(make_measurement, 5, doubt="too fast"),
        run(make_measurement, 6, rate=1e9),  # faster than the hardware can be
        run(make_measurement, 7, workers=1),
    ]
    store = ResultsStore(tmp_path / "results.sqlite")
    for record in (*others, run(make_measurement, 9)):
        store.add(record)
    assert len(StoredRuns.read(store.path).add_figures(WORKLOAD, PROFILE).measured) == 1
    assert figures(*others[:1]) == ()


def test_several_machines_keep_their_network(make_measurement: MakeMeasurement) -> None:
    place = RunPlace(kind="hosts", nodes=("a", "b"), link_bytes_per_second=1.25e9)
    (figure,) = figures(run(make_measurement, place=place, workers=16))
    assert (figure.gpus, figure.nodes, figure.network) == (16, 2, 1.25e9)


def test_predictions_and_plans_use_them_and_can_leave_them_out(
    cli: Cli, make_measurement: MakeMeasurement, tmp_path: Path
) -> None:
    spec = tmp_path / "mine.workload.yaml"
    spec.write_text("name: mine\nmodel: resnet50\nprecision: fp16\nbatch_per_gpu: 64\n")
    ResultsStore(tmp_path / "home" / "results.sqlite").add(run(make_measurement))
    arguments = ("predict", str(spec), "--on", "1x8xv100-sxm2-16gb", "--gpus", "8")
    answer = json.loads(cli(*arguments, "--json").stdout)
    assert answer["predictions"][0]["samples_per_second"] == pytest.approx(6000, rel=1e-3)
    assert answer["point_sources"] == ["run 00000000 of 2026-01-02 on here"]
    assert "run 00000000" in " ".join(cli(*arguments).stdout.split())
    without = json.loads(cli(*arguments, "--results", "none", "--json").stdout)
    assert (without["points"], without["predictions"][0]["before"]) == (0, None)
    refused = cli(*arguments, "--results", str(spec), status=2)
    assert "--results none" in refused.stderr
    plan_file = tmp_path / "p.plan.yaml"
    plan_file.write_text(
        "name: p\nruns_per_month: 10\nhorizon: 1 year\n"
        "workload: {name: mine, model: resnet50, precision: fp16, batch_per_gpu: 64, dataset: {samples: 1000000}}\n"
        "offers: [{name: eight, gpu: v100-sxm2-16gb, gpus: 8, topology: nvlink-hybrid-cube-mesh, rent: $3/h}]\n"
        "search: {offers: [eight], ways: [on-demand], nodes: [1], batch: [64], remedies: [none]}\n"
    )
    answer = json.loads(cli("plan", str(plan_file), "--json").stdout)
    assert answer["winner"]["samples_per_second"] == pytest.approx(6000, rel=1e-3)
    assert any("1 figure" in assumption for assumption in answer["assumptions"])
    without = json.loads(cli("plan", str(plan_file), "--results", "none", "--json").stdout)
    assert abs(without["winner"]["samples_per_second"] / 6000 - 1) > 1e-3


def test_a_calibration_uses_runs_of_one_other_machine_with_recorded_gpus(
    make_measurement: MakeMeasurement,
) -> None:
    names = ("Tesla V100-SXM2-16GB",) * 8
    deployed = DeployedHosts(("head", "gpu1"), slots=(8, 8), gpus=(names, names))
    laptop = run(make_measurement).provenance.model_copy(update={"gpus": ()})
    one, two = (
        run(make_measurement, n, place=deployed.record(n * 8), workers=n * 8, provenance=laptop)
        for n in (1, 2)
    )
    rows = build_calibration_rows([one, two], [])
    assert [m.id for m in rows.measurements] == [one.id]
    assert rows.rows[0].hardware.processor == "v100-sxm2-16gb"
    assert "several machines" in " ".join(rows.notes)
