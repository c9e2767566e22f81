"""Tests of scaling panels and pictures against efficiencies that were calculated by hand."""

import itertools
import re
from collections.abc import Callable
from xml.etree import ElementTree

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gpuyard.measure.training.records import MeasuredStep, Measurement, SyntheticGpu
from gpuyard.report.scaling import build_scaling_panels, draw_scaling
from gpuyard.run.places.place import RunPlace
from gpuyard.specs import ExchangeOptions
from tests.conftest import MakeMeasurement

Run = Callable[..., Measurement]
GBIT = 1.25e8
SVG = "{http://www.w3.org/2000/svg}"
V100 = SyntheticGpu(
    gpu="v100-pcie-16gb", fixed_seconds=0.01, seconds_per_sample=0.003, basis="b", source="s"
)


@pytest.fixture
def run(make_measurement: MakeMeasurement) -> Run:
    """Create measurements with a number of workers and samples/s, in a lab with a given link, or here."""
    count = 0

    def make(
        workers: int,
        rate: float,
        *,
        batch: int = 50,
        gbit: float | None = 1,
        compute: float = 0.05,
        exposed: float = 0.0,
        waits_for_input: float = 0.0,
        **more: object,
    ) -> Measurement:
        nonlocal count
        count += 1
        place = RunPlace()
        if gbit is not None:
            nodes = tuple(f"node{i}" for i in range(workers))
            place = RunPlace(kind="lab", nodes=nodes, link_bytes_per_second=gbit * GBIT, dilation=4)
        step = MeasuredStep(
            step_seconds=compute + exposed + waits_for_input,
            compute_seconds=compute,
            exposed_communication_seconds=exposed,
            input_seconds=waits_for_input,
        )
        fields: dict[str, object] = {
            "workload": "linear",
            "workers": workers,
            "batch_per_worker": batch,
            "samples_per_second": rate,
            "step": step,
            "all_reduce_bytes": 46_000_000 if workers > 1 else None,
            "place": place,
        }
        return make_measurement(count, **fields | more)

    return make


def test_a_choked_and_an_unchoked_workload_have_a_panel_each(run: Run) -> None:
    choked = [run(1, 1000), run(2, 300, exposed=0.3), run(4, 600, exposed=0.3)]
    free = [run(w, 100 * w * share, workload="conv") for w, share in ((1, 1), (4, 0.95))]
    linear, conv = build_scaling_panels([*choked, *free])
    assert (linear.title, conv.title) == ("linear, fp32, cpu", "conv, fp32, cpu")
    (line,) = linear.lines
    assert line.label == "batch 50 at 1 Gbit/s"
    assert [(p.workers, p.efficiency) for p in line.points] == [(1, 1.0), (2, 0.15), (4, 0.15)]
    assert linear.sentences == ("waits for the network: 4 nodes do the work of 0.6",)
    assert conv.sentences == ("scales: 4 nodes do the work of 3.8",)
    assert linear.traffic == "46 MB of gradients against 50 ms of compute per step"


@pytest.mark.parametrize(
    ("rate", "gbit", "parts", "sentence"),
    [
        (80, 1, {"exposed": 0.01}, "scales: 2 nodes do the work of 1.6"),
        (60, 1, {"exposed": 0.04}, "scales in part and waits for the network: 2 nodes do the work of 1.2"),
        (40, 1, {"exposed": 0.02, "compute": 0.08}, "waits for the host: 2 nodes do the work of 0.8"),
        (40, 1, {"exposed": 0.02, "waits_for_input": 0.03}, "waits for the host: 2 nodes do the work of 0.8"),
        (40, None, {"exposed": 0.08},
         "waits for the exchange between the workers: 2 workers do the work of 0.8"),
    ],
)  # fmt: skip
def test_the_sentence_names_the_choke(
    run: Run, rate: float, gbit: float | None, parts: dict[str, float], sentence: str
) -> None:
    (panel,) = build_scaling_panels([run(1, 50, gbit=gbit), run(2, rate, gbit=gbit, **parts)])
    assert panel.sentences == (sentence,)


def test_the_worst_and_the_best_line_are_described(run: Run) -> None:
    runs = [
        run(w, w * b * (1 if w == 1 else g * b / 1000), batch=b, gbit=g, synthetic=V100, exposed=1)
        for g in (1, 10)
        for b in (32, 64, 96)
        for w in (1, 10)
    ]
    (panel,) = build_scaling_panels(runs)
    assert panel.title == "linear, fp32, synthetic v100-pcie-16gb"
    assert len(panel.lines) == 6
    assert panel.sentences == (
        "batch 32 at 1 Gbit/s waits for the network: 10 nodes do the work of 0.3",
        "batch 96 at 10 Gbit/s scales: 10 nodes do the work of 9.6",
    )


def test_a_remedy_is_compared_with_one_plain_worker(run: Run) -> None:
    fp16 = ExchangeOptions(compress="fp16")
    runs = [run(1, 100), run(2, 50), run(1, 80, remedy=fp16), run(2, 120, remedy=fp16)]
    (panel,) = build_scaling_panels(runs)
    plain, compressed = panel.lines
    assert compressed.label == "batch 50 at 1 Gbit/s with fp16"
    assert [p.efficiency for p in plain.points] == [1.0, 0.25]
    assert [p.efficiency for p in compressed.points] == [0.8, 0.6]


def test_repeats_are_averaged(run: Run) -> None:
    (panel,) = build_scaling_panels([run(1, 90), run(1, 110), run(2, 100), run(2, 140)])
    assert [(p.workers, p.efficiency) for p in panel.lines[0].points] == [(1, 1.0), (2, 0.6)]


def test_lines_without_a_run_on_one_worker_are_listed_as_not_drawn(run: Run) -> None:
    runs = [run(1, 100), run(2, 190), run(2, 190, batch=60), run(4, 300, batch=60)]
    (panel,) = build_scaling_panels(runs)
    assert [line.label for line in panel.lines] == ["batch 50 at 1 Gbit/s"]
    assert "no run on 1 node: batch 60 at 1 Gbit/s" in draw_scaling(runs, "t")


def test_the_picture_has_the_sentences_the_lines_and_the_basis(run: Run) -> None:
    runs = [run(1, 1000), run(4, 600, exposed=0.3), run(1, 10, workload="<conv> & more")]
    drawn = ElementTree.fromstring(draw_scaling(runs, "A & B"))  # noqa: S314 - our own
    texts = [text.text or "" for text in drawn.iter(f"{SVG}text")]
    assert "A & B" in texts
    assert "<conv> & more, fp32, cpu" in texts
    assert "3 runs in a lab on CPU, 2 cores, time dilated × 4, 2026-01-02" in texts
    assert "waits for the network: 4 nodes do the work of 0.6" in texts
    assert "15%, batch 50 at 1 Gbit/s" in texts
    first, second = drawn.iter(f"{SVG}polyline")
    assert (len(first.attrib["points"].split()), len(second.attrib["points"].split())) == (2, 1)
    assert first.attrib["stroke"] == second.attrib["stroke"]  # the same batch and link


def test_a_picture_without_measurements() -> None:
    assert "nothing was measured" in draw_scaling([], "empty")


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=40)
@given(shares=st.lists(st.floats(0.001, 1.6), min_size=1, max_size=30))
def test_no_labels_overlap_and_all_points_are_inside(run: Run, shares: list[float]) -> None:
    runs = []
    for batch, share in enumerate(shares, 1):
        runs += [run(1, 100, batch=batch), run(8, 800 * share, batch=batch)]
    svg = draw_scaling(runs, "many")
    drawn = ElementTree.fromstring(svg)  # noqa: S314 - our own
    width, height = float(drawn.attrib["width"]), float(drawn.attrib["height"])
    labels = [t for t in drawn.iter(f"{SVG}text") if re.search(r"%, batch", t.text or "")]
    tops = sorted(float(label.attrib["y"]) for label in labels)
    assert len(tops) == len(shares)
    assert all(b - a > 15 for a, b in itertools.pairwise(tops))
    for polyline in drawn.iter(f"{SVG}polyline"):
        for point in polyline.attrib["points"].split():
            x, y = map(float, point.split(","))
            assert 0 < x < width
            assert 0 < y < height


def test_runs_of_another_precision_have_their_own_panel(run: Run) -> None:
    fp32 = run(1, 100)
    bf16 = fp32.model_copy(update={"spec": {**fp32.spec, "precision": "bf16"}})
    assert [panel.title for panel in build_scaling_panels([fp32, bf16])] == [
        "linear, fp32, cpu",
        "linear, bf16, cpu",
    ]
