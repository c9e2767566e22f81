"""What the loss takes of memory when backward begins: the gradients of its steps, all else being kept then."""

import weakref
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_iter, tree_map

from gpuyard.workloads.task import Task


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
