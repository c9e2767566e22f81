"""Factories for the tests; rank processes import them by name, as a user's would be."""

import time
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.utils.data import TensorDataset

from gpuyard.workloads.task import Task

NOT_CALLABLE = 3


def classifier() -> Task:
    """The class is the largest of the first four inputs: easy to learn."""

    def batch(n: int) -> tuple[tuple[Tensor, ...], Tensor]:
        inputs = torch.randn(n, 16)
        return (inputs,), inputs[:, :4].argmax(1)

    return Task(nn.Linear(16, 4), batch, cross_entropy, "16 numbers")


def bare() -> nn.Module:
    return nn.Linear(16, 4)


def embedding() -> nn.Module:
    return nn.Sequential(nn.Embedding(7, 3), nn.Flatten(), nn.Linear(6, 2))


def chatty() -> Task:
    print("a user's model may print")  # noqa: T201
    return classifier()


def number() -> int:
    return 3


def needs_argument(width: int) -> nn.Module:
    return nn.Linear(width, 4)


def frozen() -> nn.Module:
    return bare().requires_grad_(False)


def dataset() -> TensorDataset:
    return TensorDataset(torch.arange(48.0).reshape(3, 16), torch.tensor([0, 1, 2]))


class CrashInRankOne(nn.Module):
    """Fails in the second rank only, at its third step; the first rank then loses its peer."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(16, 4)
        self.calls = 0

    def forward(self, inputs: Tensor) -> Tensor:
        self.calls += 1
        if torch.distributed.get_rank() == 1 and self.calls == 3:
            raise ValueError("the second rank has had enough")
        return self.inner(inputs)  # type: ignore[no-any-return]


class Hanging(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(16, 4)

    def forward(self, inputs: Tensor) -> Tensor:
        time.sleep(600)
        return self.inner(inputs)  # type: ignore[no-any-return]


class FirstHangsSecondCrashes(Hanging):
    """Hangs or crashes in ranks only; profiling it works."""

    def forward(self, inputs: Tensor) -> Tensor:
        if not torch.distributed.is_initialized():
            return self.inner(inputs)  # type: ignore[no-any-return]
        if torch.distributed.get_rank() == 1:
            raise ValueError("the second rank has had enough")
        return super().forward(inputs)


class WaitsAtBatch3(nn.Module):
    """Goes on at batch size 3 only when the file `go` is in the current directory."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(16, 4)

    def forward(self, inputs: Tensor) -> Tensor:
        while len(inputs) == 3 and not Path("go").exists():
            time.sleep(0.02)
        return self.inner(inputs)  # type: ignore[no-any-return]


class Busy(nn.Module):
    """Takes at least BUSY_SECONDS of a core, however fast it is."""

    BUSY_SECONDS = 0.005

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(16, 4)

    def forward(self, inputs: Tensor) -> Tensor:
        until = time.thread_time() + self.BUSY_SECONDS
        while time.thread_time() < until:
            pass
        return self.inner(inputs)  # type: ignore[no-any-return]


def learnable() -> TensorDataset:
    """Which of the first four numbers is the largest, 200 times."""
    inputs = torch.randn(200, 16, generator=torch.Generator().manual_seed(7))
    return TensorDataset(inputs, inputs[:, :4].argmax(1))


def forgetful() -> Task:
    """A model with dropout and running statistics, which a checkpoint must restore as well."""
    layers = (nn.Linear(16, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Dropout(0.2), nn.Linear(32, 4))
    return Task(nn.Sequential(*layers), classifier().batch, cross_entropy, "16 numbers")
