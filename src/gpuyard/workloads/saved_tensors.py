"""The memory that autograd saves for backward on a GPU, in fp32 and under autocast.

It also measures what backward through the loss needs at its start, when everything else is still saved.
"""

import contextlib
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.autograd.graph import saved_tensors_hooks
from torch.nn import functional
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_iter, tree_map

from gpuyard.workloads.task import Task


class SavedTensors:
    """The storages that a forward pass saves, each once, without the model's parameters."""

    def __init__(self, parameters: Iterable[Tensor]) -> None:
        self._parameters = {_storage_address(parameter) for parameter in parameters}
        # keeps the storages alive, because the address of a freed one could be reused
        self._storages: dict[int, torch.UntypedStorage] = {}

    def watch(self) -> saved_tensors_hooks:
        return saved_tensors_hooks(self._pack, lambda tensor: tensor)

    def _pack(self, tensor: Tensor) -> Tensor:
        address = _storage_address(tensor)
        if address not in self._parameters:
            self._storages[address] = tensor.untyped_storage()
        return tensor.detach()  # with its graph it would be part of a reference cycle

    @property
    def sizes(self) -> list[int]:
        """The sizes in bytes, in the order in which they were saved."""
        return [storage.nbytes() for storage in self._storages.values()]


def measure_autocast(task: Task, samples: int) -> tuple[list[int], int]:
    """Return the bytes of each tensor saved in fp16 or bf16 autocast, and of backward through the loss.

    Both precisions save the same bytes. Autocast ignores tensors on "meta", so fake tensors replace them, which torch
    treats as CPU tensors and which have no values either.
    """
    tensors = {**dict(task.model.named_parameters()), **dict(task.model.named_buffers())}
    device = next(task.model.parameters()).device
    if device.type != "meta":
        return _measure_autocast(task, samples, tensors, device)
    with FakeTensorMode(allow_non_fake_inputs=True), torch.device("cpu") as cpu:
        fake = {name: _empty_like(tensor) for name, tensor in tensors.items()}
        return _measure_autocast(task, samples, fake, cpu)


def _measure_autocast(
    task: Task, samples: int, tensors: dict[str, Tensor], device: torch.device
) -> tuple[list[int], int]:
    saved = SavedTensors(tensors.values())
    inputs, target = task.batch(samples)
    with (
        _without_onednn(),
        torch.autocast(device.type, dtype=torch.bfloat16),
        GpuKernels(),
        saved.watch(),
    ):
        output = torch.func.functional_call(task.model, tensors, inputs)
        task.loss(output, target)
    with torch.autocast(device.type, dtype=torch.bfloat16), GpuKernels():
        gradients = loss_gradient_bytes(task, output, target)
    return saved.sizes, gradients


@contextlib.contextmanager
def _without_onednn() -> Iterator[None]:
    """Disable oneDNN, whose recurrent layers save less than a GPU's.

    The context manager `flags` would set more and warn about it.
    """
    before, *_ = torch.backends.mkldnn.set_flags(_enabled=False, _fp32_precision=None)  # type: ignore[no-untyped-call]
    try:
        yield
    finally:
        torch.backends.mkldnn.set_flags(_enabled=before, _fp32_precision=None)  # type: ignore[no-untyped-call]


def _empty_like(tensor: Tensor) -> Tensor:
    empty = torch.empty(tensor.shape, dtype=tensor.dtype)
    if isinstance(tensor, nn.Parameter):
        return nn.Parameter(empty, requires_grad=tensor.requires_grad)
    return empty


def _storage_address(tensor: Tensor) -> int:
    return int(tensor.untyped_storage()._cdata)


# Under autocast, a GPU computes these in fp32, but a CPU does not
# (pytorch.org/docs/stable/amp.html, "CUDA Ops that can autocast to float32").
_FP32_OPERATIONS = {
    functional.layer_norm, torch.layer_norm, functional.group_norm, torch.group_norm,
    functional.softmax, torch.softmax, Tensor.softmax,
    functional.log_softmax, torch.log_softmax, Tensor.log_softmax,
}  # fmt: skip


class GpuKernels(TorchFunctionMode):
    """Makes a forward pass save the same tensors as on a GPU.

    On a GPU, torch uses a fused attention kernel, which saves no matrix of all pairs of tokens. For tensors without
    values, it would use the plain formula, which does. Norms are in fp32.
    """

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Sequence[type],
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        kwargs = kwargs or {}
        if func is functional.scaled_dot_product_attention:
            query = args[0] if args else kwargs["query"]
            if query.dim() == 4 and (query.is_meta or isinstance(query, FakeTensor)):
                return _fused_attention(*args, **kwargs)
        if func in _FP32_OPERATIONS and args and torch.is_autocast_enabled("cpu"):
            return func(args[0].float(), *args[1:], **kwargs)
        return func(*args, **kwargs)


def _fused_attention(  # noqa: PLR0917  torch's own signature
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor:
    if torch.is_autocast_enabled("cpu"):
        query, key, value = (t.to(torch.get_autocast_dtype("cpu")) for t in (query, key, value))
    if enable_gqa:
        group_size = query.size(-3) // key.size(-3)
        key = key.repeat_interleave(group_size, -3)
        value = value.repeat_interleave(group_size, -3)
    if attn_mask is not None:
        pairs = (*query.shape[:-1], key.size(-2))
        attn_mask = attn_mask.to(query.dtype).expand(pairs)
    attended: Tensor = torch.ops.aten._scaled_dot_product_efficient_attention(
        query, key, value, attn_mask, True, dropout_p, is_causal, scale=scale
    )[0]
    return attended


class LiveBytes(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Counts the bytes of storages that operations create, until they are freed."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._live: dict[int, int] = {}
        self.now = 0
        self.peak = 0

    def __torch_dispatch__(
        self,
        func: Callable[..., Any],
        types: Sequence[type],
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        for value in tree_iter(result):
            if isinstance(value, Tensor):
                self._add(value.untyped_storage())
        return result

    def _add(self, storage: torch.UntypedStorage) -> None:
        address = int(storage._cdata)
        if address not in self._live:
            self._live[address] = storage.nbytes()
            self.now += storage.nbytes()
            self.peak = max(self.peak, self.now)
            weakref.finalize(storage, self._remove, address)

    def _remove(self, address: int) -> None:
        self.now -= self._live.pop(address, 0)


def loss_gradient_bytes(task: Task, output: Any, target: Tensor) -> int:
    """Return the peak memory of backward through the loss, beyond what its forward pass left.

    The cross entropy of a language model creates two gradients as large as its logits, one after the other, and frees
    the first when the second exists.
    """
    leaves: list[Tensor] = []

    def make_leaf(value: Any) -> Any:
        if isinstance(value, Tensor) and value.is_floating_point():
            leaves.append(value.detach().requires_grad_())
            return leaves[-1]
        return value

    live = LiveBytes()
    with live:
        detached = tree_map(make_leaf, output)
        if not leaves:  # an object with a `logits` attribute
            detached = tree_map(make_leaf, getattr(output, "logits", output))
        loss = task.loss(detached, target)
        before = live.peak = live.now
        if leaves and loss.requires_grad:
            torch.autograd.grad(loss, leaves, allow_unused=True)
    return live.peak - before
