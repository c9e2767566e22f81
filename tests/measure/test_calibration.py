"""Stored or exported measurements become the rows that a calibration is fitted to."""

from collections.abc import Callable
from pathlib import Path

import pytest

from gpuyard.errors import UserMistake
from gpuyard.measure.calibration import build_calibration_rows, identify_hardware
from gpuyard.measure.kind import to_json_lines
from gpuyard.measure.links.records import LinkBench
from gpuyard.measure.reading import read_results
from gpuyard.measure.store import ResultsStore
from gpuyard.measure.training.records import MeasuredStep, Measurement, SyntheticGpu
from gpuyard.measure.training.tables import TRAIN
from gpuyard.predictor.calibration.rows import Hardware
from gpuyard.run.places.place import RunPlace
from gpuyard.specs import ExchangeOptions
from tests.conftest import MakeMeasurement

SPEC = {"name": "mine", "model": "alexnet", "precision": "fp16", "batch_per_gpu": 8}


def test_a_run_becomes_a_row(make_measurement: MakeMeasurement) -> None:
    step = MeasuredStep(
        step_seconds=0.2,
        compute_seconds=0.1,
        exposed_communication_seconds=0.075,
        input_seconds=0.025,
    )
    measurement = make_measurement(spec=SPEC, step=step, all_reduce_seconds=0.06)
    (row,) = build_calibration_rows([measurement], []).rows
    assert row.hardware == Hardware("cpu", "CPU", 2, 1)
    assert (row.key.model, row.key.precision) == ("alexnet", "fp16")
    assert (row.workers, row.batch_per_worker) == (2, 10)
    assert row.step_seconds == 0.2
    assert row.busy_seconds == pytest.approx(0.125)
    assert row.all_reduce_seconds == 0.06
    # half of the 95% interval, 10.125 of 100.125, is 1.96 σ
    assert row.noise == pytest.approx(0.0516, abs=1e-4)


@pytest.mark.parametrize(
    ("gpus", "hardware"),
    [
        (("Tesla V100-SXM2-16GB",) * 4, Hardware("cuda", "v100-sxm2-16gb", 4)),
        (("A card of tomorrow",), Hardware("cuda", "A card of tomorrow", 1)),
        (("Tesla K80", "Tesla T4"), Hardware("cuda", "Tesla K80, Tesla T4", 2)),
    ],
)
def test_gpus_are_named_as_in_the_catalog_where_it_knows_them(
    gpus: tuple[str, ...], hardware: Hardware, make_measurement: MakeMeasurement
) -> None:
    plain = make_measurement()
    on_gpu = plain.model_copy(
        update={
            "device": "cuda",
            "provenance": plain.provenance.model_copy(update={"gpus": gpus}),
        }
    )
    assert identify_hardware(on_gpu) == hardware


def test_a_missing_model_becomes_a_note(make_measurement: MakeMeasurement) -> None:
    lost = make_measurement(1, spec={"name": "lost", "model": "no_such_module:f"}, workload="lost")
    odd = make_measurement(2, spec={"model": 3}, workload="odd")
    good = make_measurement(3, spec=SPEC)
    rows = build_calibration_rows([lost, lost, odd, good], [])
    assert len(rows.rows) == len(rows.measurements) == 1
    about_lost, about_odd = rows.notes
    assert "lost" in about_lost
    assert "no_such_module" in about_lost
    assert "odd" in about_odd
    assert "spec" in about_odd


def test_runs_that_were_not_plain_training_on_one_machine_are_left_out(
    make_measurement: MakeMeasurement,
) -> None:
    """A lab's links, an emulated GPU, or a remedy would distort the constants of this machine."""
    gpu = SyntheticGpu(
        gpu="t4", fixed_seconds=0.01, seconds_per_sample=0.001, basis="roofline", source="test"
    )
    odd = [
        make_measurement(1, spec=SPEC, synthetic=gpu),
        make_measurement(2, spec=SPEC, remedy=ExchangeOptions(compress="fp16")),
        make_measurement(3, spec=SPEC, remedy=ExchangeOptions(accumulate=4)),
        make_measurement(4, spec=SPEC, place=RunPlace(kind="lab", nodes=("node0", "node1"))),
    ]
    good = make_measurement(5, spec=SPEC)
    rows = build_calibration_rows([*odd, good], [])
    assert rows.measurements == (good,)
    emulated, remedy, machines = rows.notes
    assert emulated.startswith("1 run ")
    assert "synthetic GPU" in emulated
    assert remedy.startswith("2 runs ")
    assert "remedy" in remedy
    assert machines.startswith("1 run ")
    assert "several machines" in machines


def test_doubtful_runs_are_left_out_with_their_reasons(
    make_measurement: MakeMeasurement,
) -> None:
    reasons = [*(f"windows of the same work differ by {n}%" for n in (21, 35, 35, 50, 70)), None]
    runs = [make_measurement(n, spec=SPEC, doubt=reason) for n, reason in enumerate(reasons)]
    slept = SyntheticGpu(
        gpu="t4", fixed_seconds=0.01, seconds_per_sample=0.001, basis="roofline", source="test"
    )
    # a run with two reasons counts for the first one only
    runs.append(make_measurement(9, spec=SPEC, doubt="windows differ", synthetic=slept))
    rows = build_calibration_rows(runs, [])
    assert rows.measurements == (runs[5],)
    emulated, doubtful = rows.notes
    assert emulated.startswith("1 run ")
    assert doubtful.startswith("5 runs ")
    assert [n for n in (21, 35, 50, 70) if f"{n}%" in doubtful] == [21, 35, 50]
    assert doubtful.count("35%") == 1
    assert "and 1 more" in doubtful
    assert "--doubtful" in doubtful
    every = build_calibration_rows(runs, [], include_doubtful=True)
    assert every.measurements == tuple(runs[:6])
    assert len(every.notes) == 1


def test_runs_and_benches_are_checked_again(
    make_measurement: MakeMeasurement, make_bench: Callable[..., LinkBench]
) -> None:
    """Earlier versions stored the runs of studies without checking them."""
    good = make_measurement(1, spec=SPEC)
    uneven = [good.windows[0].model_copy(update={"seconds": seconds}) for seconds in (0.1, 0.2)]
    wild = make_measurement(2, spec=SPEC, windows=tuple(uneven))
    busy = make_bench(1).model_copy(update={"doubt": "other programs used 40% of the cores"})
    rows = build_calibration_rows([good, wild], [busy])
    assert rows.measurements == (good,)
    assert rows.benches == ()
    about_bench, about_run = rows.notes
    assert about_bench.startswith("1 link bench ")
    assert str(busy.doubt) in about_bench
    assert about_run.startswith("1 run ")
    assert "100%" in about_run
    assert all("--doubtful" in note for note in rows.notes)
    every = build_calibration_rows([good, wild], [busy], include_doubtful=True)
    assert (every.measurements, every.benches, every.notes) == ((good, wild), (busy,), ())


def test_a_run_without_compute_is_left_out(make_measurement: MakeMeasurement) -> None:
    """If noise makes the exchange longer than the step, its compute time has no logarithm."""
    odd = make_measurement(spec=SPEC, step=MeasuredStep(
        step_seconds=0.1, compute_seconds=-0.01, exposed_communication_seconds=0.11,
        input_seconds=0.0,
    ))  # fmt: skip
    rows = build_calibration_rows([odd], [])
    assert rows.rows == ()
    (note,) = rows.notes
    assert odd.id in note
    assert "compute" in note


def test_the_slowest_link_of_a_bench_belongs_to_its_machine(
    make_measurement: MakeMeasurement, make_bench: Callable[..., LinkBench]
) -> None:
    bench = make_bench()
    plain = make_measurement(spec=SPEC)
    gpus = bench.host.gpus
    there = plain.provenance.model_copy(update={"gpus": gpus})
    on_gpu = plain.model_copy(update={"device": "cuda", "provenance": there})
    rows = build_calibration_rows([on_gpu, plain], [bench])
    hardware = Hardware("cuda", "NVIDIA A, NVIDIA B", 2)
    assert rows.links[hardware].bytes_per_second == pytest.approx(5.8e9)
    assert set(rows.links) == {hardware}  # no loopback was timed


def test_stores_and_exports_are_read_together_and_each_run_counts_once(
    tmp_path: Path,
    make_measurement: MakeMeasurement,
    make_bench: Callable[..., LinkBench],
    store: ResultsStore,
) -> None:
    store.add(make_measurement(1))
    store.add(make_bench())
    export = tmp_path / "runs.jsonl"
    export.write_text(to_json_lines([make_measurement(1), make_measurement(2)]) + "\n")
    results = read_results([store.path, export])
    assert [m.id for m in results.select(Measurement)] == [f"{1:012x}", f"{2:012x}"]
    assert [b.id for b in results.select(LinkBench)] == [make_bench().id]


def test_a_file_that_is_not_an_export_is_rejected(
    tmp_path: Path, make_measurement: MakeMeasurement
) -> None:
    flat = tmp_path / "runs.csv"
    flat.write_text(TRAIN.to_csv([make_measurement(1)]))
    with pytest.raises(UserMistake, match=r"runs.csv is CSV, .* results export --as json"):
        read_results([flat])
    broken = tmp_path / "broken.jsonl"
    broken.write_text(to_json_lines([make_measurement(1)]) + '{"kind": "train"}\n')
    with pytest.raises(UserMistake, match=r"broken.jsonl:2: not a measurement \(id: Field"):
        read_results([broken])
    other = tmp_path / "picture"
    other.write_bytes(b"\x89PNG\xff\xfe")
    with pytest.raises(UserMistake, match="neither a results store nor an export"):
        read_results([other])
    with pytest.raises(UserMistake, match=r"nowhere .*No such file"):
        read_results([tmp_path / "nowhere"])
    with pytest.raises(UserMistake, match="is a directory"):
        read_results([tmp_path])
