"""A model that computes nothing but takes as long as a GPU would, and has real parameters and gradients.

Forward and backward sleep; backward hands out each layer's gradients when that layer's share of the time
has passed. So buckets fill, and exchanges begin, when they would on that GPU.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd import Function
from torch.autograd.function import FunctionCtx

from gpuyard.catalog import ModelProfile
from gpuyard.errors import GpuyardError
from gpuyard.specs import Workload
from gpuyard.workloads.profiles import profile_here
from gpuyard.workloads.profiling import trained_layers
from gpuyard.workloads.resolve import build_task
from gpuyard.workloads.task import Task

FORWARD_SHARE = 1 / 3
"""Backward computes twice as much: gradients by the input, and gradients by the parameters."""
StepSeconds = Callable[[int], float]
"""From a batch to the seconds of its compute."""


@dataclass(frozen=True)
class SyntheticLayer:
    """The shapes of a layer's parameters, and which share of the step has passed when it has its gradients."""

    name: str
    shapes: tuple[tuple[int, ...], ...]
    ready_share: float


def synthetic_layers(workload: Workload) -> tuple[SyntheticLayer, ...]:
    """In the order of backward."""
    profile = profile_here(workload)
    shapes = _shapes(workload)
    total = sum(layer.forward_flops for layer in profile.layers)
    found, done = [], 0
    for index, layer in enumerate(profile.layers):
        done += layer.forward_flops
        # a model without counted FLOPs is taken as evenly spread over its layers
        backward = done / total if total else (index + 1) / len(profile.layers)
        ready = FORWARD_SHARE + (1 - FORWARD_SHARE) * backward
        found.append(SyntheticLayer(layer.name, _of_layer(layer.name, profile, shapes), ready))
    return tuple(found)


def synthetic_task(workload: Workload, step_seconds: StepSeconds) -> Task:
    """The stand-in for the workload's model; its batches are nothing but as long as asked for."""
    model = _Sleeper(synthetic_layers(workload), step_seconds)

    def batch(n: int) -> tuple[tuple[Tensor, ...], Tensor]:
        return (torch.zeros(n, 1),), torch.zeros(n, 1)

    return Task(model, batch, lambda output, _target: output.sum(), sample="nothing")


class _Sleeper(nn.Module):
    def __init__(self, layers: tuple[SyntheticLayer, ...], step_seconds: StepSeconds) -> None:
        super().__init__()
        self._layers = layers
        self._step_seconds = step_seconds
        # registered in the order of forward, as DDP expects them
        named: dict[int, list[nn.Parameter]] = {}
        for index in reversed(range(len(layers))):
            own = [nn.Parameter(torch.zeros(shape)) for shape in layers[index].shapes]
            for number, parameter in enumerate(own):
                self.register_parameter(f"layer{index}_{number}", parameter)
            named[index] = own
        self._own = named

    def forward(self, inputs: Tensor) -> Tensor:
        seconds = self._step_seconds(len(inputs))
        began = time.perf_counter()
        flow = torch.zeros(1, requires_grad=True)
        for index in reversed(range(len(self._layers))):
            due = began + seconds * self._layers[index].ready_share
            flow = _Layer.apply(flow, due, *self._own[index])  # type: ignore[no-untyped-call]
        _sleep_until(began + seconds * FORWARD_SHARE)
        return flow


class _Layer(Function):
    @staticmethod
    def forward(ctx: FunctionCtx, flow: Tensor, due: float, *parameters: Tensor) -> Tensor:
        context: Any = ctx
        context.due = due
        context.shapes = [parameter.shape for parameter in parameters]
        return flow.clone()

    @staticmethod
    def backward(ctx: FunctionCtx, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        context: Any = ctx
        own = [torch.full(shape, 1e-3) for shape in context.shapes]
        # by the clock, so that making and copying gradients is part of the time, not added to it
        _sleep_until(context.due)
        return gradients[0], None, *own


def _sleep_until(due: float) -> None:
    left = due - time.perf_counter()
    if left > 0:
        time.sleep(left)


def _shapes(workload: Workload) -> dict[str, list[tuple[int, ...]]]:
    try:
        with torch.device("meta"):
            model = build_task(workload).model
    except (
        GpuyardError
    ):  # it looks at values, which "meta" has none of; any other fault comes again
        model = build_task(workload).model
    return {
        name: [tuple(parameter.shape) for parameter in own]
        for name, (_, own) in trained_layers(model).items()
    }


def _of_layer(
    name: str, profile: ModelProfile, shapes: dict[str, list[tuple[int, ...]]]
) -> tuple[tuple[int, ...], ...]:
    parameters = next(layer.parameters for layer in profile.layers if layer.name == name)
    known = shapes.get(name, [])
    if sum(torch.Size(shape).numel() for shape in known) == parameters:
        return tuple(known)
    return ((parameters,),)  # some of the layer's parameters get no gradient
