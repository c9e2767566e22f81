"""`gpuyard bench sweep --svg` on a sweep that is stored: drawn without measuring, and without a lab."""

import json
from pathlib import Path
from xml.etree import ElementTree

import pytest

from gpuyard import files
from gpuyard.catalog.specfiles import read_sweep
from gpuyard.measure.reading import read_results
from gpuyard.measure.store import ResultsStore
from gpuyard.measure.training.matrix import plan_matrix
from gpuyard.measure.training.records import Measurement
from tests.conftest import Cli, MakeMeasurement

SWEEP = """
name: Stored
workloads: [resnet50]
nodes: [1, 4]
batch: [32]
gpu: v100-pcie-16gb
link: [1 Gbit/s]
"""


@pytest.fixture
def stored(tmp_path: Path, make_measurement: MakeMeasurement) -> Path:
    """Its file; the store has a run for each of its points."""
    file = tmp_path / "stored.sweep.yaml"
    file.write_text(SWEEP)
    (sweep,) = plan_matrix(read_sweep(file), tmp_path).sweeps
    store = ResultsStore(files.results_file())
    for number, (point, rate) in enumerate(zip(sweep.points, (270.0, 240.0), strict=True)):
        store.add(
            make_measurement(
                number,
                key=point.key,
                workload="resnet50",
                workers=point.workers,
                batch_per_worker=point.batch_per_worker,
                samples_per_second=rate,
                synthetic=sweep.synthetic,
                place=sweep.place.record(point.workers),
            )
        )
    return file


def test_a_finished_sweep_is_drawn_without_measuring(
    cli: Cli, stored: Path, tmp_path: Path
) -> None:
    picture, results = tmp_path / "scaling.svg", tmp_path / "results.jsonl"
    done = cli(
        "bench", "sweep", str(stored), "--svg", str(picture), "--output", str(results), "--json"
    )
    assert len(json.loads(done.stdout)["measurements"]) == 2
    drawn = picture.read_text(encoding="utf-8")
    assert ElementTree.fromstring(drawn).tag.endswith("svg")  # noqa: S314  our own
    assert "resnet50, fp32, synthetic v100-pcie-16gb" in drawn
    assert "waits for the network: 4 nodes do the work of 0.9" in drawn
    assert len(read_results([results]).select(Measurement)) == 2


def test_a_sweep_without_one_node_has_nothing_to_scale_from(
    cli: Cli, stored: Path, tmp_path: Path
) -> None:
    stored.write_text(SWEEP.replace("[1, 4]", "[2, 4]"))
    done = cli("bench", "sweep", str(stored), "--svg", str(tmp_path / "no.svg"), status=2)
    assert "add 1 to 'nodes'" in " ".join(done.stderr.split())
    assert not (tmp_path / "no.svg").exists()


def test_an_unwritable_output_is_reported_before_measuring(cli: Cli, stored: Path) -> None:
    done = cli("bench", "sweep", str(stored), "--svg", str(stored / "x.svg"), status=2)
    assert "is a file" in " ".join(done.stderr.split())
