"""Profile any trainable torch module: the compute and the gradients of each layer.

Everything comes from real forward and backward passes on the task's device; on "meta" they need no memory and almost
no time. `saved_tensors.py` measures what is saved for backward.
"""

import contextlib
import datetime
import math
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from gpuyard.catalog.models import LayerProfile, ModelProfile
from gpuyard.errors import UserMistake
from gpuyard.workloads.saved_tensors import (
    GpuKernels,
    SavedTensors,
    loss_gradient_bytes,
    measure_autocast,
)
from gpuyard.workloads.task import Task

Shape = Sequence[int]

# Two batches, to separate what does not grow with the batch (masks, statistics);
# neither is 1, because batch normalization refuses it.
_SMALL_BATCH, _LARGE_BATCH = 2, 4


def profile_task(task: Task, *, id: str, name: str) -> ModelProfile:
    """Run the task twice, restore it, and return the cost of one sample."""
    parameters = list(task.model.parameters())
    if not any(parameter.requires_grad for parameter in parameters):
        raise UserMistake(f"{name} has no parameters to train")
    device = parameters[0].device
    with _restored(task.model, device), device:
        small = count_step(task, _SMALL_BATCH)
        large = count_step(task, _LARGE_BATCH)
        autocast_sizes, autocast_loss_bytes = zip(
            *(measure_autocast(task, samples) for samples in (_SMALL_BATCH, _LARGE_BATCH)),
            strict=True,
        )
    saved, saved_autocast = _growth(small.saved, large.saved), _growth(*autocast_sizes)
    widths = {
        layer: sum(p.nbytes for p in own) / sum(p.numel() for p in own)
        for layer, (_, own) in trained_layers(task.model).items()
    }
    layers = tuple(
        LayerProfile(
            name=layer,
            parameters=large.ready[layer],
            bytes_per_parameter=widths[layer],
            forward_flops=_per_sample(small.flops.get(layer, 0), large.flops.get(layer, 0)),
        )
        for layer in large.ready
    )
    return ModelProfile(
        id=id,
        name=name,
        sample=task.sample,
        parameters=sum(parameter.numel() for parameter in parameters),
        layers=layers,
        forward_flops=_per_sample(sum(small.flops.values()), sum(large.flops.values())),
        cudnn_flops=_per_sample(small.cudnn_flops, large.cudnn_flops),
        activation_bytes=round(sum(saved)),
        activation_bytes_autocast=round(sum(saved_autocast)),
        largest_activation_bytes=round(max(saved, default=0)),
        largest_activation_bytes_autocast=round(max(saved_autocast, default=0)),
        loss_gradient_bytes=_per_sample(small.loss_bytes, large.loss_bytes),
        loss_gradient_bytes_autocast=_per_sample(*autocast_loss_bytes),
        input_bytes=_per_sample(small.input_bytes, large.input_bytes),
        bytes_per_parameter=sum(p.nbytes for p in parameters) / sum(p.numel() for p in parameters),
        source=f"profiled with torch {torch.__version__}",
        date=datetime.datetime.now(datetime.UTC).date(),
    )


def _per_sample(small: int, large: int) -> int:
    return round((large - small) / (_LARGE_BATCH - _SMALL_BATCH))


def _growth(small: Sequence[int], large: Sequence[int]) -> list[float]:
    """Return the bytes per sample of each saved tensor; both runs save the same ones in the same order.

    If they don't (because a model chooses by its values), return the total instead.
    """
    if len(small) != len(large):
        small, large = [sum(small)], [sum(large)]
    samples = _LARGE_BATCH - _SMALL_BATCH
    return [(after - before) / samples for before, after in zip(small, large, strict=True)]


@dataclass(frozen=True)
class StepCounts:
    """The counts of one step, for its whole batch."""

    flops: dict[str, int]
    cudnn_flops: int
    ready: dict[str, int]  # parameters by layer, in the order in which gradients became ready
    saved: list[int]  # bytes of each tensor
    loss_bytes: int  # needed by backward through the loss
    input_bytes: int


def count_step(task: Task, samples: int) -> StepCounts:
    """Count one step, forward and backward, on the current device."""
    inputs, target = task.batch(samples)
    saved = SavedTensors(task.model.parameters())
    with GpuKernels(), saved.watch():
        with _FlopsByLayer(task.model) as flops:
            output = task.model(*inputs)
        loss = task.loss(output, target)
    loss_bytes = loss_gradient_bytes(task, output, target)
    with _watch_gradients(task.model) as ready:
        torch.autograd.backward(loss)
    task.model.zero_grad(set_to_none=True)
    return StepCounts(
        flops=flops.by_layer,
        cudnn_flops=flops.cudnn,
        ready=ready,
        saved=saved.sizes,
        loss_bytes=loss_bytes,
        input_bytes=sum(tensor.nbytes for tensor in inputs),
    )


def trained_layers(model: nn.Module) -> dict[str, tuple[nn.Module, list[nn.Parameter]]]:
    """Return every module that has its own trainable parameters, with them, by its name in the model.

    A tied parameter belongs to the first module that has it.
    """
    layers = {}
    assigned: set[nn.Parameter] = set()
    for name, module in model.named_modules():
        parameters = [
            parameter
            for parameter in module.parameters(recurse=False)
            if parameter.requires_grad and parameter not in assigned
        ]
        if parameters:
            assigned.update(parameters)
            layers[name or "model"] = (module, parameters)
    return layers


@contextlib.contextmanager
def _watch_gradients(model: nn.Module) -> Iterator[dict[str, int]]:
    """Count parameters by layer; a layer moves to the end with each gradient that becomes ready.

    A parameter without a gradient does not count, because it is not exchanged.
    """
    ready: dict[str, int] = {}

    def create_hook(layer: str) -> Callable[[Tensor], None]:
        def count(parameter: Tensor) -> None:
            ready[layer] = ready.pop(layer, 0) + parameter.numel()

        return count

    with contextlib.ExitStack() as stack:
        for layer, (_, parameters) in trained_layers(model).items():
            for parameter in parameters:
                handle = parameter.register_post_accumulate_grad_hook(create_hook(layer))  # type: ignore[no-untyped-call]
                stack.callback(handle.remove)
        yield ready


class _FlopsByLayer:
    """Counts forward FLOPs by the layer that ran last.

    Computation between two layers (attention, tied outputs) counts for the earlier one, because backward must do it
    before that layer's gradients are ready.
    """

    def __init__(self, model: nn.Module) -> None:
        self.by_layer: dict[str, int] = defaultdict(int)
        self._model = model
        self._stack = contextlib.ExitStack()
        self._counter = FlopCounterMode(display=False, custom_mapping=_MISSING_FLOPS)
        self._layer: str | None = None
        self._counted = 0

    def __enter__(self) -> "_FlopsByLayer":
        for layer, (module, _) in trained_layers(self._model).items():
            handle = module.register_forward_pre_hook(self._create_hook(layer))
            self._stack.callback(handle.remove)
        self._stack.enter_context(self._counter)
        return self

    def __exit__(self, *exception: object) -> None:
        self._stack.close()
        self._move_to(None)
        self.by_layer = dict(self.by_layer)

    @property
    def cudnn(self) -> int:
        """FLOPs of convolutions, by kernel, and of RNNs, by layer, because RNNs have many kernels."""
        counts = self._counter.get_flop_counts().get("Global", {})
        convolutions = (flops for kernel, flops in counts.items() if "convolution" in str(kernel))
        layers = trained_layers(self._model)
        rnns = (
            self.by_layer.get(n, 0) for n, (m, _) in layers.items() if isinstance(m, nn.RNNBase)
        )
        return sum(convolutions) + sum(rnns)

    def _create_hook(self, layer: str) -> Callable[[nn.Module, Any], None]:
        return lambda _module, _inputs: self._move_to(layer)

    def _move_to(self, layer: str | None) -> None:
        total = self._counter.get_total_flops()
        finished = self._layer or layer
        if finished is not None:
            self.by_layer[finished] += total - self._counted
            self._counted = total
        self._layer = layer


@contextlib.contextmanager
def _restored(model: nn.Module, device: torch.device) -> Iterator[None]:
    """Set training mode; restore mode, gradients, statistics, and random numbers afterwards."""
    modes = {module: module.training for module in model.modules()}
    gradients = {parameter: parameter.grad for parameter in model.parameters()}
    buffers = {buffer: buffer.clone() for buffer in model.buffers()}
    model.train()
    model.zero_grad(set_to_none=True)
    try:
        with torch.random.fork_rng([device] if device.type == "cuda" else []):
            yield
    finally:
        for module, training in modes.items():
            module.training = training
        for parameter, gradient in gradients.items():
            parameter.grad = gradient
        with torch.no_grad():
            for buffer, value in buffers.items():
                buffer.copy_(value)


def _cpu_attention_flops(query: Shape, key: Shape, value: Shape, *_: Any, **__: Any) -> int:
    """Count every query with every key, and the weights with the values; a mask saves nothing."""
    *heads, queries, width = query
    return 2 * math.prod(heads) * queries * key[-2] * (width + value[-1])


def _cpu_lstm_flops(
    inputs: Shape, input_weight: Shape, recurrent_weight: Shape, *_: Any, **__: Any
) -> int:
    return _gpu_rnn_flops(inputs, [input_weight, recurrent_weight])


def _gpu_rnn_flops(inputs: Shape, weights: Sequence[Shape], *_: Any, **__: Any) -> int:
    """Count a multiplication of every step of every sample with all weights, without biases."""
    matrices = [weight for weight in weights if len(weight) == 2]
    return 2 * math.prod(inputs[:-1]) * sum(math.prod(matrix) for matrix in matrices)


def _matrix_vector_flops(matrix: Shape, *_: Any, **__: Any) -> int:
    return 2 * math.prod(matrix)


# Kernels that FlopCounterMode does not count. It passes shapes instead of tensors.
_MISSING_FLOPS: dict[Any, Callable[..., int]] = {
    torch.ops.aten._scaled_dot_product_flash_attention_for_cpu: _cpu_attention_flops,
    torch.ops.aten.mkldnn_rnn_layer: _cpu_lstm_flops,
    torch.ops.aten._cudnn_rnn: _gpu_rnn_flops,
    torch.ops.aten.miopen_rnn: _gpu_rnn_flops,
    torch.ops.aten.mv: _matrix_vector_flops,
    torch.ops.aten.dot: _matrix_vector_flops,
}
