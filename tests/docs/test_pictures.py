"""Tests that the documentation's pictures are current, and that the lab pictures show what the docs say."""

import subprocess
import sys
from pathlib import Path

from gpuyard.draw.scaling import ScalingPanel
from gpuyard.measure.reading import read_results
from gpuyard.measure.training.records import Measurement
from gpuyard.report.scaling import build_scaling_panels

ROOT = Path(__file__).parents[2]


def results(name: str) -> list[Measurement]:
    return read_results([ROOT / "tests" / "data" / "lab" / f"{name}.jsonl"]).select(Measurement)


def last_efficiency(panel: ScalingPanel, label: str) -> float:
    (line,) = [line for line in panel.lines if line.label == label]
    return line.points[-1].efficiency


def test_the_drawings_are_current() -> None:
    command = [sys.executable, str(ROOT / "scripts" / "draw_docs.py"), "--check"]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stdout + result.stderr


def test_the_linear_model_chokes_at_1_gbit_and_the_conv_model_does_not() -> None:
    linear, conv = build_scaling_panels(results("choke"))
    assert linear.title.startswith("spoken-digits-linear")
    assert linear.sentences[0].startswith("waits for the network: 4 nodes")
    assert last_efficiency(linear, "batch 50 at 1 Gbit/s") < 1 / 4  # slower than one alone
    assert conv.title.startswith("spoken-digits-conv")
    assert conv.sentences[0].startswith("scales: 4 nodes")


def test_a_larger_batch_helps_a_slow_network_and_a_faster_network_helps_more() -> None:
    (panel,) = build_scaling_panels(results("slices"))
    slow = [last_efficiency(panel, f"batch {batch} at 1 Gbit/s") for batch in (32, 64, 96)]
    assert slow == sorted(slow)
    assert last_efficiency(panel, "batch 32 at 10 Gbit/s") > slow[-1]
