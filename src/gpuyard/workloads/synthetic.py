"""A synthetic GPU: a model that computes nothing, takes as long as a GPU would, and has real gradients.

Forward and backward sleep; backward emits each layer's gradients when that layer's share of the time has
passed. So buckets fill and exchanges begin when they would on that GPU.
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
from gpuyard.workloads.profiles import profile_in_process
from gpuyard.workloads.profiling import trained_layers
from gpuyard.workloads.resolve import build_task
from gpuyard.workloads.task import Task

FORWARD_SHARE = 1 / 3
"""Backward computes twice as much: gradients with respect to the input and to the parameters."""
StepSeconds = Callable[[int], float]
"""A function from a batch size to the seconds of its compute."""


@dataclass(frozen=True)
class SyntheticLayer:
    """The parameter shapes of a layer, and the share of the step after which its gradients are ready."""

    name: str
    shapes: tuple[tuple[int, ...], ...]
    ready_share: float


def synthetic_layers(workload: Workload) -> tuple[SyntheticLayer, ...]:
    """Return the layers in the order of backward."""
    profile = profile_in_process(workload)
    shapes = _find_shapes(workload)
    total = sum(layer.forward_flops for layer in profile.layers)
    layers, done = [], 0
    for index, layer in enumerate(profile.layers):
        done += layer.forward_flops
        # without counted FLOPs, the time is spread evenly over the layers
        backward = done / total if total else (index + 1) / len(profile.layers)
        ready = FORWARD_SHARE + (1 - FORWARD_SHARE) * backward
        layers.append(SyntheticLayer(layer.name, _layer_shapes(layer.name, profile, shapes), ready))
    return tuple(layers)


def synthetic_task(workload: Workload, step_seconds: StepSeconds) -> Task:
    """Return a stand-in for the workload's model with empty batches of any size."""
    model = _SleepingModel(synthetic_layers(workload), step_seconds)

    def batch(n: int) -> tuple[tuple[Tensor, ...], Tensor]:
        return (torch.zeros(n, 1),), torch.zeros(n, 1)

    return Task(model, batch, lambda output, _target: output.sum(), sample="nothing")


class _SleepingModel(nn.Module):
    def __init__(self, layers: tuple[SyntheticLayer, ...], step_seconds: StepSeconds) -> None:
        super().__init__()
        self._layers = layers
        self._step_seconds = step_seconds
        # registered in the order of forward, as DDP expects them
        self._parameters_by_layer: dict[int, list[nn.Parameter]] = {}
        for index in reversed(range(len(layers))):
            parameters = [nn.Parameter(torch.zeros(shape)) for shape in layers[index].shapes]
            for number, parameter in enumerate(parameters):
                self.register_parameter(f"layer{index}_{number}", parameter)
            self._parameters_by_layer[index] = parameters

    def forward(self, inputs: Tensor) -> Tensor:
        seconds = self._step_seconds(len(inputs))
        start = time.perf_counter()
        flow = torch.zeros(1, requires_grad=True)
        for index in reversed(range(len(self._layers))):
            due = start + seconds * self._layers[index].ready_share
            flow = _SleepingLayer.apply(flow, due, *self._parameters_by_layer[index])  # type: ignore[no-untyped-call]
        _sleep_until(start + seconds * FORWARD_SHARE)
        return flow


class _SleepingLayer(Function):
    @staticmethod
    def forward(ctx: FunctionCtx, flow: Tensor, due: float, *parameters: Tensor) -> Tensor:
        context: Any = ctx
        context.due = due
        context.shapes = [parameter.shape for parameter in parameters]
        return flow.clone()

    @staticmethod
    def backward(ctx: FunctionCtx, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        context: Any = ctx
        parameter_gradients = [torch.full(shape, 1e-3) for shape in context.shapes]
        # by the clock, so that creating and copying gradients is part of the time, not added to it
        _sleep_until(context.due)
        return gradients[0], None, *parameter_gradients


def _sleep_until(due: float) -> None:
    remaining = due - time.perf_counter()
    if remaining > 0:
        time.sleep(remaining)


def _find_shapes(workload: Workload) -> dict[str, list[tuple[int, ...]]]:
    try:
        with torch.device("meta"):
            model = build_task(workload).model
    except GpuyardError:  # it reads values, which "meta" lacks; any other fault is raised again
        model = build_task(workload).model
    return {
        name: [tuple(parameter.shape) for parameter in parameters]
        for name, (_, parameters) in trained_layers(model).items()
    }


def _layer_shapes(
    name: str, profile: ModelProfile, shapes: dict[str, list[tuple[int, ...]]]
) -> tuple[tuple[int, ...], ...]:
    parameters = next(layer.parameters for layer in profile.layers if layer.name == name)
    layer_shapes = shapes.get(name, [])
    if sum(torch.Size(shape).numel() for shape in layer_shapes) == parameters:
        return tuple(layer_shapes)
    return ((parameters,),)  # some of the layer's parameters get no gradient
