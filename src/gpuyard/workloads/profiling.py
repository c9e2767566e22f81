"""The profile of any trainable torch module: what each layer computes and which gradients it sends.

Everything is taken from real forward and backward passes, on the device where the task was built;
on "meta" they cost no memory and almost no time. What is kept for backward: `kept.py`.
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
from gpuyard.workloads.kept import KeptTensors, LikeGpus, kept_under_autocast, loss_gradient_bytes
from gpuyard.workloads.task import Task

Shape = Sequence[int]

# Two batches, because what does not grow with the batch (masks, statistics) is no sample's share;
# and none of one, because batch normalization refuses it.
_SMALL_BATCH, _LARGE_BATCH = 2, 4


def profile_task(task: Task, *, id: str, name: str) -> ModelProfile:
    """Run the task twice, leave it as it was, and say what one sample costs."""
    parameters = list(task.model.parameters())
    if not any(parameter.requires_grad for parameter in parameters):
        raise UserMistake(f"{name} has no parameters to train")
    device = parameters[0].device
    with _left_as_it_was(task.model, device), device:
        small = _run(task, _SMALL_BATCH)
        large = _run(task, _LARGE_BATCH)
        mixed, of_loss = zip(
            *(kept_under_autocast(task, samples) for samples in (_SMALL_BATCH, _LARGE_BATCH)),
            strict=True,
        )
    kept, kept_mixed = _growth(small.kept, large.kept), _growth(*mixed)
    layers = tuple(
        LayerProfile(
            name=layer,
            parameters=large.ready[layer],
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
        activation_bytes=round(sum(kept)),
        activation_bytes_autocast=round(sum(kept_mixed)),
        largest_activation_bytes=round(max(kept, default=0)),
        largest_activation_bytes_autocast=round(max(kept_mixed, default=0)),
        loss_gradient_bytes=_per_sample(small.loss_bytes, large.loss_bytes),
        loss_gradient_bytes_autocast=_per_sample(*of_loss),
        input_bytes=_per_sample(small.input_bytes, large.input_bytes),
        source=f"profiled with torch {torch.__version__}",
        date=datetime.datetime.now(datetime.UTC).date(),
    )


def _per_sample(small: int, large: int) -> int:
    return round((large - small) / (_LARGE_BATCH - _SMALL_BATCH))


def _growth(small: Sequence[int], large: Sequence[int]) -> list[float]:
    """Of each kept tensor, by a sample: both runs keep the same ones, in the same order. Where they don't
    (a model that chooses by its values), of all of them together."""
    if len(small) != len(large):
        small, large = [sum(small)], [sum(large)]
    more = _LARGE_BATCH - _SMALL_BATCH
    return [(after - before) / more for before, after in zip(small, large, strict=True)]


@dataclass(frozen=True)
class _Run:
    """What one step did, for its whole batch."""

    flops: dict[str, int]
    cudnn_flops: int
    ready: dict[str, int]  # parameters by layer, in the order in which gradients became ready
    kept: list[int]  # bytes of each tensor
    loss_bytes: int  # that backward through the loss needs
    input_bytes: int


def _run(task: Task, samples: int) -> _Run:
    inputs, target = task.batch(samples)
    kept = KeptTensors(task.model.parameters())
    with LikeGpus(), kept.watch():
        with _FlopsByLayer(task.model) as flops:
            output = task.model(*inputs)
        loss = task.loss(output, target)
    loss_bytes = loss_gradient_bytes(task, output, target)
    with _ready_gradients(task.model) as ready:
        torch.autograd.backward(loss)
    task.model.zero_grad(set_to_none=True)
    return _Run(
        flops=flops.by_layer,
        cudnn_flops=flops.of_cudnn,
        ready=ready,
        kept=kept.sizes,
        loss_bytes=loss_bytes,
        input_bytes=sum(tensor.nbytes for tensor in inputs),
    )


def trained_layers(model: nn.Module) -> dict[str, tuple[nn.Module, list[nn.Parameter]]]:
    """Every module with trainable parameters of its own, and these, by its name in the model.

    A tied parameter belongs to the first module that has it.
    """
    layers = {}
    taken: set[nn.Parameter] = set()
    for name, module in model.named_modules():
        own = [
            parameter
            for parameter in module.parameters(recurse=False)
            if parameter.requires_grad and parameter not in taken
        ]
        if own:
            taken.update(own)
            layers[name or "model"] = (module, own)
    return layers


@contextlib.contextmanager
def _ready_gradients(model: nn.Module) -> Iterator[dict[str, int]]:
    """Parameters by layer; a layer moves to the end with each of its gradients that is ready.

    A parameter that gets no gradient is not counted: nothing of it is exchanged.
    """
    ready: dict[str, int] = {}

    def noting(layer: str) -> Callable[[Tensor], None]:
        def note(parameter: Tensor) -> None:
            ready[layer] = ready.pop(layer, 0) + parameter.numel()

        return note

    with contextlib.ExitStack() as stack:
        for layer, (_, parameters) in trained_layers(model).items():
            for parameter in parameters:
                handle = parameter.register_post_accumulate_grad_hook(noting(layer))  # type: ignore[no-untyped-call]
                stack.callback(handle.remove)
        yield ready


class _FlopsByLayer:
    """Counts FLOPs of forward by the layer that ran last.

    What is computed between two layers (attention, tied outputs) goes to the earlier one: in
    backward it has to be done before that layer's gradients are ready.
    """

    def __init__(self, model: nn.Module) -> None:
        self.by_layer: dict[str, int] = defaultdict(int)
        self._model = model
        self._stack = contextlib.ExitStack()
        self._counter = FlopCounterMode(display=False, custom_mapping=_MISSING_FLOPS)
        self._layer: str | None = None
        self._seen = 0

    def __enter__(self) -> "_FlopsByLayer":
        for layer, (module, _) in trained_layers(self._model).items():
            handle = module.register_forward_pre_hook(self._entering(layer))
            self._stack.callback(handle.remove)
        self._stack.enter_context(self._counter)
        return self

    def __exit__(self, *exception: object) -> None:
        self._stack.close()
        self._move_to(None)
        self.by_layer = dict(self.by_layer)

    @property
    def of_cudnn(self) -> int:
        """Of convolutions, by their kernel; of RNNs, by their layer: elsewhere they have many kernels."""
        counts = self._counter.get_flop_counts().get("Global", {})
        convolutions = (flops for kernel, flops in counts.items() if "convolution" in str(kernel))
        layers = trained_layers(self._model)
        rnns = (
            self.by_layer.get(n, 0) for n, (m, _) in layers.items() if isinstance(m, nn.RNNBase)
        )
        return sum(convolutions) + sum(rnns)

    def _entering(self, layer: str) -> Callable[[nn.Module, Any], None]:
        return lambda _module, _inputs: self._move_to(layer)

    def _move_to(self, layer: str | None) -> None:
        total = self._counter.get_total_flops()
        done = self._layer or layer
        if done is not None:
            self.by_layer[done] += total - self._seen
            self._seen = total
        self._layer = layer


@contextlib.contextmanager
def _left_as_it_was(model: nn.Module, device: torch.device) -> Iterator[None]:
    """Training mode inside; mode, gradients, statistics and random numbers restored after."""
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
    """Every query with every key, and the weights with the values (a mask spares nothing)."""
    *heads, queries, width = query
    return 2 * math.prod(heads) * queries * key[-2] * (width + value[-1])


def _cpu_lstm_flops(
    inputs: Shape, input_weight: Shape, recurrent_weight: Shape, *_: Any, **__: Any
) -> int:
    return _gpu_rnn_flops(inputs, [input_weight, recurrent_weight])


def _gpu_rnn_flops(inputs: Shape, weights: Sequence[Shape], *_: Any, **__: Any) -> int:
    """Every sample's every step is multiplied with all weights; biases are only added."""
    matrices = [weight for weight in weights if len(weight) == 2]
    return 2 * math.prod(inputs[:-1]) * sum(math.prod(matrix) for matrix in matrices)


def _matrix_vector_flops(matrix: Shape, *_: Any, **__: Any) -> int:
    return 2 * math.prod(matrix)


# Kernels that FlopCounterMode takes for free. It passes shapes in place of tensors.
_MISSING_FLOPS: dict[Any, Callable[..., int]] = {
    torch.ops.aten._scaled_dot_product_flash_attention_for_cpu: _cpu_attention_flops,
    torch.ops.aten.mkldnn_rnn_layer: _cpu_lstm_flops,
    torch.ops.aten._cudnn_rnn: _gpu_rnn_flops,
    torch.ops.aten.miopen_rnn: _gpu_rnn_flops,
    torch.ops.aten.mv: _matrix_vector_flops,
    torch.ops.aten.dot: _matrix_vector_flops,
}
