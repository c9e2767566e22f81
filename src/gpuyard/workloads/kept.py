"""What autograd keeps of a forward pass for backward, as it is on a GPU, in fp32 and under autocast; and what the loss
takes when backward begins: the gradients of its steps, all else being kept then."""

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


class KeptTensors:
    """Each storage once, the model's parameters not."""

    def __init__(self, parameters: Iterable[Tensor]) -> None:
        self._parameters = {_storage_address(parameter) for parameter in parameters}
        # Holding on to them, because a freed storage's address would be used again.
        self._storages: dict[int, torch.UntypedStorage] = {}

    def watch(self) -> saved_tensors_hooks:
        return saved_tensors_hooks(self._pack, lambda tensor: tensor)

    def _pack(self, tensor: Tensor) -> Tensor:
        address = _storage_address(tensor)
        if address not in self._parameters:
            self._storages[address] = tensor.untyped_storage()
        return tensor.detach()  # with its graph it would hold what holds it, for ever

    @property
    def sizes(self) -> list[int]:
        """In bytes, in the order in which they were kept."""
        return [storage.nbytes() for storage in self._storages.values()]


def kept_under_autocast(task: Task, samples: int) -> tuple[list[int], int]:
    """Bytes of each tensor kept by a forward pass of fp16 or bf16 mixed precision, which keep alike; and what
    backward through the loss needs.

    Autocast passes over tensors on "meta". What is there is stood in for by fake tensors, which torch
    takes for a CPU's and which have no values either.
    """
    here = {**dict(task.model.named_parameters()), **dict(task.model.named_buffers())}
    device = next(task.model.parameters()).device
    if device.type != "meta":
        return _kept(task, samples, here, device)
    with FakeTensorMode(allow_non_fake_inputs=True), torch.device("cpu") as cpu:
        return _kept(task, samples, {name: _like(tensor) for name, tensor in here.items()}, cpu)


def _kept(
    task: Task, samples: int, tensors: dict[str, Tensor], device: torch.device
) -> tuple[list[int], int]:
    kept = KeptTensors(tensors.values())
    inputs, target = task.batch(samples)
    with (
        _without_onednn(),
        torch.autocast(device.type, dtype=torch.bfloat16),
        LikeGpus(),
        kept.watch(),
    ):
        output = torch.func.functional_call(task.model, tensors, inputs)
        task.loss(output, target)
    with torch.autocast(device.type, dtype=torch.bfloat16), LikeGpus():
        gradients = loss_gradient_bytes(task, output, target)
    return kept.sizes, gradients


@contextlib.contextmanager
def _without_onednn() -> Iterator[None]:
    """Its recurrent layers keep less than a GPU's. Not by `flags`, which sets more and warns of it."""
    before, *_ = torch.backends.mkldnn.set_flags(_enabled=False, _fp32_precision=None)  # type: ignore[no-untyped-call]
    try:
        yield
    finally:
        torch.backends.mkldnn.set_flags(_enabled=before, _fp32_precision=None)  # type: ignore[no-untyped-call]


def _like(tensor: Tensor) -> Tensor:
    empty = torch.empty(tensor.shape, dtype=tensor.dtype)
    if isinstance(tensor, nn.Parameter):
        return nn.Parameter(empty, requires_grad=tensor.requires_grad)
    return empty


def _storage_address(tensor: Tensor) -> int:
    return int(tensor.untyped_storage()._cdata)


# Under autocast a GPU computes these in fp32 and a CPU does not
# (pytorch.org/docs/stable/amp.html, "CUDA Ops that can autocast to float32").
_IN_FP32 = {
    functional.layer_norm, torch.layer_norm, functional.group_norm, torch.group_norm,
    functional.softmax, torch.softmax, Tensor.softmax,
    functional.log_softmax, torch.log_softmax, Tensor.log_softmax,
}  # fmt: skip


class LikeGpus(TorchFunctionMode):
    """Lets a forward pass keep what it keeps on a GPU.

    There torch takes a fused kernel for attention, which keeps no matrix of all pairs of tokens; for
    tensors without values it would choose the plain formula, which does. And norms are in fp32.
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
        if func in _IN_FP32 and args and torch.is_autocast_enabled("cpu"):
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
        shared_by = query.size(-3) // key.size(-3)
        key = key.repeat_interleave(shared_by, -3)
        value = value.repeat_interleave(shared_by, -3)
    if attn_mask is not None:
        pairs = (*query.shape[:-1], key.size(-2))
        attn_mask = attn_mask.to(query.dtype).expand(pairs)
    attended: Tensor = torch.ops.aten._scaled_dot_product_efficient_attention(
        query, key, value, attn_mask, True, dropout_p, is_causal, scale=scale
    )[0]
    return attended


class LiveBytes(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Counts the storages that operations make, until they are freed."""

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
        made = func(*args, **(kwargs or {}))
        for one in tree_iter(made):
            if isinstance(one, Tensor):
                self._add(one.untyped_storage())
        return made

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
    """The most that backward through the loss needs beyond what its forward pass has left there.

    Cross entropy of a language model makes two gradients as large as its logits, one after the other, and
    frees the first when the second is there.
    """
    leaves: list[Tensor] = []

    def apart(one: Any) -> Any:
        if isinstance(one, Tensor) and one.is_floating_point():
            leaves.append(one.detach().requires_grad_())
            return leaves[-1]
        return one

    live = LiveBytes()
    with live:
        given = tree_map(apart, output)
        if not leaves:  # an object with logits in it
            given = tree_map(apart, getattr(output, "logits", output))
        loss = task.loss(given, target)
        before = live.peak = live.now
        if leaves and loss.requires_grad:
            torch.autograd.grad(loss, leaves, allow_unused=True)
    return live.peak - before
