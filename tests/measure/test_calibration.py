"""From stored measurements, here or exported elsewhere, to what a calibration is fitted to."""

from collections.abc import Callable
from pathlib import Path

import pytest

from gpuyard.errors import UserMistake
from gpuyard.measure import (
    LinkBench,
    MeasuredStep,
    Measurement,
    ResultsStore,
    read_results,
    to_json_lines,
)
from gpuyard.measure.calibration import calibration_rows, hardware_of
from gpuyard.measure.training.records import SyntheticGpu
from gpuyard.measure.training.tables import TRAIN
from gpuyard.predict.calibration.rows import Hardware
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
    made = make_measurement(spec=SPEC, step=step, all_reduce_seconds=0.06)
    (row,) = calibration_rows([made], []).rows
    assert row.hardware == Hardware("cpu", "CPU", 2, 1)
    assert (row.key.model, row.key.precision) == ("alexnet", "fp16")
    assert (row.workers, row.batch_per_worker) == (2, 10)
    assert row.step_seconds == 0.2
    assert row.busy_seconds == pytest.approx(0.125)
    assert row.all_reduce_seconds == 0.06
    # half of the 95 % interval, 10.125 of 100.125, is 1.96 σ
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
    assert hardware_of(on_gpu) == hardware


def test_a_model_that_is_not_here_is_a_note_not_a_crash(make_measurement: MakeMeasurement) -> None:
    lost = make_measurement(1, spec={"name": "lost", "model": "no_such_module:f"}, workload="lost")
    odd = make_measurement(2, spec={"model": 3}, workload="odd")
    good = make_measurement(3, spec=SPEC)
    found = calibration_rows([lost, lost, odd, good], [])
    assert len(found.rows) == len(found.measurements) == 1
    assert len(found.notes) == 2
    assert found.notes[0].startswith("Runs of lost are left out: ")
    assert "no_such_module" in found.notes[0]
    assert found.notes[1] == "Runs of odd are left out: its spec can't be read"


def test_runs_that_were_not_plain_training_on_one_machine_are_left_out(
    make_measurement: MakeMeasurement,
) -> None:
    """A lab's links, a slept GPU or a remedy would bend the constants of this machine."""
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
    found = calibration_rows([*odd, good], [])
    assert found.measurements == (good,)
    assert found.notes == (
        "1 run is left out: computing was emulated, with a synthetic GPU",
        "2 runs are left out: a remedy changed the exchange",
        "1 run is left out: its workers were on several machines, and a calibration is of one",
    )


def test_runs_that_are_not_credible_are_left_out_with_their_reasons(
    make_measurement: MakeMeasurement,
) -> None:
    reasons = [*(f"windows of the same work differ by {n} %" for n in (21, 35, 35, 50, 70)), None]
    runs = [make_measurement(n, spec=SPEC, doubt=reason) for n, reason in enumerate(reasons)]
    slept = SyntheticGpu(
        gpu="t4", fixed_seconds=0.01, seconds_per_sample=0.001, basis="roofline", source="test"
    )
    # left out for one reason, not counted for another
    runs.append(make_measurement(9, spec=SPEC, doubt="windows differ", synthetic=slept))
    found = calibration_rows(runs, [])
    assert found.measurements == (runs[5],)
    assert found.notes == (
        "1 run is left out: computing was emulated, with a synthetic GPU",
        "5 runs are left out as not credible (windows of the same work differ by 21 %; windows of "
        "the same work differ by 35 %; windows of the same work differ by 50 %; and 1 more); "
        "--doubtful uses them anyway",
    )
    every = calibration_rows(runs, [], doubtful_too=True)
    assert every.measurements == tuple(runs[:6])
    assert len(every.notes) == 1


def test_runs_and_benches_that_were_never_judged_are_judged(
    make_measurement: MakeMeasurement, make_bench: Callable[..., LinkBench]
) -> None:
    """Earlier versions stored the runs of studies without a look at them."""
    good = make_measurement(1, spec=SPEC)
    uneven = [good.windows[0].model_copy(update={"seconds": seconds}) for seconds in (0.1, 0.2)]
    wild = make_measurement(2, spec=SPEC, windows=tuple(uneven))
    busy = make_bench(1).model_copy(update={"doubt": "other programs used 40 % of the cores"})
    found = calibration_rows([good, wild], [busy])
    assert found.measurements == (good,)
    assert found.benches == ()
    assert found.notes == (
        "1 bench of links is left out as not credible (other programs used 40 % of the cores); "
        "--doubtful uses it anyway",
        "1 run is left out as not credible (windows of the same work differ by 100 %); "
        "--doubtful uses it anyway",
    )
    every = calibration_rows([good, wild], [busy], doubtful_too=True)
    assert (every.measurements, every.benches, every.notes) == ((good, wild), (busy,), ())


def test_a_run_without_compute_is_left_out(make_measurement: MakeMeasurement) -> None:
    """Where noise made the exchange longer than the step, no logarithm can be taken."""
    odd = make_measurement(spec=SPEC, step=MeasuredStep(
        step_seconds=0.1, compute_seconds=-0.01, exposed_communication_seconds=0.11,
        input_seconds=0.0,
    ))  # fmt: skip
    found = calibration_rows([odd], [])
    assert found.rows == ()
    assert found.notes == (f"Run {odd.id} is left out: it has no time for compute",)


def test_the_slowest_link_of_a_bench_belongs_to_its_machine(
    make_measurement: MakeMeasurement, make_bench: Callable[..., LinkBench]
) -> None:
    bench = make_bench()
    plain = make_measurement(spec=SPEC)
    gpus = bench.host.gpus
    there = plain.provenance.model_copy(update={"gpus": gpus})
    on_gpu = plain.model_copy(update={"device": "cuda", "provenance": there})
    found = calibration_rows([on_gpu, plain], [bench])
    kind = Hardware("cuda", "NVIDIA A, NVIDIA B", 2)
    assert found.links[kind].bytes_per_second == pytest.approx(5.8e9)
    assert set(found.links) == {kind}  # no loopback was timed


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
    found = read_results([store.path, export])
    assert [m.id for m in found.of(Measurement)] == [f"{1:012x}", f"{2:012x}"]
    assert [b.id for b in found.of(LinkBench)] == [make_bench().id]


def test_what_is_no_export_gets_a_sentence(
    tmp_path: Path, make_measurement: MakeMeasurement
) -> None:
    flat = tmp_path / "runs.csv"
    flat.write_text(TRAIN.to_csv([make_measurement(1)]))
    with pytest.raises(UserMistake, match=r"runs.csv is CSV, .* results export --format json"):
        read_results([flat])
    broken = tmp_path / "broken.jsonl"
    broken.write_text(to_json_lines([make_measurement(1)]) + '{"kind": "train"}\n')
    with pytest.raises(UserMistake, match=r"broken.jsonl:2: not a measurement \(id: Field"):
        read_results([broken])
    other = tmp_path / "picture"
    other.write_bytes(b"\x89PNG\xff\xfe")
    with pytest.raises(UserMistake, match="neither a results store nor an export"):
        read_results([other])
    with pytest.raises(UserMistake, match="nowhere can't be read: No such file"):
        read_results([tmp_path / "nowhere"])
    with pytest.raises(UserMistake, match="is a directory"):
        read_results([tmp_path])
