"""Intervals of large models: wide without evidence, and never widened by a measured figure."""

import json

import pytest

from gpuyard.predictor.large.constants import load_fit
from gpuyard.predictor.large.interval import interval_kind, narrow_interval
from tests.conftest import Cli


def width(ends: tuple[float, float]) -> float:
    return ends[1] / ends[0]


@pytest.mark.parametrize("kind", ["dense/known", "dense/unknown", "moe/known", "moe/unknown"])
def test_a_measured_figure_never_widens_the_interval(kind: str) -> None:
    fit = load_fit()
    widths = [width(narrow_interval(fit, kind, differences)) for differences in range(6)]
    assert widths == sorted(widths)
    assert widths[0] < width(fit.spread[kind])
    assert widths[-1] <= width(fit.spread[kind])


@pytest.mark.parametrize("experts", [0, 8])
def test_a_kind_of_gpu_without_runs_has_the_wider_interval(experts: int) -> None:
    spread = load_fit().spread
    known, unknown = (spread[interval_kind(experts=experts, known=k)] for k in (True, False))
    assert width(unknown) > width(known)


def test_experts_on_a_gpu_without_such_runs_have_a_caveat_in_front(cli: Cli) -> None:
    widths = {}
    for gpu in ("h100", "mi300x"):
        arguments = ["predict", "qwen3-30b-a3b", "--on", f"8x{gpu}", "--strategy", "auto"]
        row = json.loads(cli(*arguments, "--json").stdout)["predictions"][-1]
        widths[gpu] = row["tokens_per_second_high"] / row["tokens_per_second_low"]
        start = " ".join(cli(*arguments).stdout.splitlines()[:3])
        assert ("interval is wide" in start) == (gpu == "mi300x")
    assert widths["mi300x"] > widths["h100"]
