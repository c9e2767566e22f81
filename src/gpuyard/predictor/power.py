"""The speed and the energy of a GPU under a power cap, from published curves.

A cap slows the computation on the GPU, not the exchange between GPUs. The interval is the range of the published curves;
it is wider for an architecture that no curve is about.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from statistics import median
from typing import Any

import numpy as np

from gpuyard.catalog import Gpu, gpus
from gpuyard.catalog.power_caps import PowerPoint, power_caps
from gpuyard.errors import UserMistake
from gpuyard.predictor.predicted import ClusterPrediction, Prediction

_MIN_SHARE = 0.42  # of the rated power; there are hardly any curves below
_UNKNOWN = (
    1.5  # the loss of an architecture without curves may be larger by this factor, or smaller
)
_TRIED_SHARES = np.arange(0.95, _MIN_SHARE, -0.01)


@dataclass(frozen=True)
class PowerCap:
    """A cap of one GPU, and the speed that it leaves."""

    watts: float
    rated_watts: float
    speed: float  # relative to the rated power, with a 90% interval
    low: float
    high: float
    drawn_watts: float  # on average while training
    uncapped_watts: float
    basis: str

    def as_json(self) -> dict[str, Any]:
        return {
            "watts": self.watts, "rated_watts": self.rated_watts, "speed": self.speed,
            "speed_low": self.low, "speed_high": self.high, "drawn_watts": self.drawn_watts,
            "uncapped_watts": self.uncapped_watts, "basis": self.basis,
        }  # fmt: skip


def cap_power(gpu: Gpu, watts: float) -> PowerCap:
    """Return the effect of a cap. Raise UserMistake for one that is below all published curves."""
    share = min(1.0, watts / gpu.board_watts)
    if share < _MIN_SHARE:
        lowest = -(-gpu.board_watts * _MIN_SHARE // 5) * 5
        raise UserMistake(
            f"a power cap of {watts:g} W is too low for {gpu.name} ({gpu.board_watts:g} W): published curves end at "
            f"{lowest:g} W"
        )
    same_architecture = {
        name: points for name, points in _curves().items()
        if points[0].architecture == gpu.architecture
    }  # fmt: skip
    curves = same_architecture or _curves()
    speeds = [_interpolate(points, share, "speed") for points in curves.values()]
    middle, low, high = median(speeds), min(speeds), max(speeds)
    if not same_architecture:
        low, high = low**_UNKNOWN, high ** (1 / _UNKNOWN)
    measured = [points for points in curves.values() if points[0].watts is not None]
    drawn, uncapped = (
        gpu.board_watts * median(_interpolate(points, at, "watts") for points in measured)
        for at in (share, 1.0)
    )
    about = (
        f"{gpu.architecture} GPUs"
        if same_architecture
        else f"other GPUs, none on {gpu.architecture}"
    )
    return PowerCap(
        min(watts, gpu.board_watts), gpu.board_watts, middle, low, high,
        min(drawn, watts), uncapped, f"{len(curves)} published curves on {about}",
    )  # fmt: skip


@cache
def _curves() -> Mapping[str, tuple[PowerPoint, ...]]:
    """Return the points of each curve from the lowest cap to the highest."""
    curves: dict[str, list[PowerPoint]] = {}
    for point in power_caps():
        curves.setdefault(point.curve, []).append(point)
    return {
        name: tuple(sorted(points, key=lambda point: point.cap_watts))
        for name, points in curves.items()
    }


def _interpolate(points: tuple[PowerPoint, ...], share: float, name: str) -> float:
    """Return a curve's value; below its lowest cap, speed falls in proportion to power."""
    shares = [point.cap_watts / point.rated_watts for point in points]
    values = [
        point.speed if name == "speed" else (point.watts or 0.0) / point.rated_watts
        for point in points
    ]
    if share < shares[0]:
        return values[0] * share / shares[0]
    return float(np.interp(share, shares, values))


def cap_cluster_prediction(result: ClusterPrediction, cap: PowerCap) -> ClusterPrediction:
    """Return the predictions with slower computation."""
    return replace(result, predictions=tuple(_cap_prediction(p, cap) for p in result.predictions))


def _cap_prediction(prediction: Prediction, cap: PowerCap) -> Prediction:
    step = prediction.step
    ratio, low, high = (
        step.seconds / (step.seconds + step.compute_seconds * (1 / speed - 1))
        for speed in (cap.speed, cap.low, cap.high)
    )
    epoch, training = prediction.epoch_seconds, prediction.training_seconds
    return replace(
        prediction,
        samples_per_second=prediction.samples_per_second * ratio,
        low=prediction.low * low,
        high=prediction.high * high,
        step=replace(step, compute_seconds=step.compute_seconds / cap.speed),
        epoch_seconds=None if epoch is None else epoch / ratio,
        training_seconds=None if training is None else training / ratio,
        before=None,
    )


def list_caps(gpu_id: str) -> list[PowerCap]:
    """Return the caps to try for a GPU, the highest first, in whole steps of 5 W."""
    gpu = gpus().get(gpu_id)
    watts = dict.fromkeys(float(5 * (share * gpu.board_watts // 5)) for share in _TRIED_SHARES)
    return [cap_power(gpu, value) for value in watts if value >= _MIN_SHARE * gpu.board_watts]
