"""One training step under each strategy, with and without the exchange of gradients; and what goes over the links
instead of plain fp32 gradients: communication hooks, and averaged parameters."""

import copy
import time
import zlib
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.algorithms.ddp_comm_hooks import powerSGD_hook as powersgd
from torch.nn.parallel import DataParallel, DistributedDataParallel
from torch.optim import SGD, Optimizer

from gpuyard.errors import UserMistake
from gpuyard.measure.convergence.recipe import build_optimizer
from gpuyard.measure.training.records import TrainingJob
from gpuyard.specs import ExchangeOptions, Precision
from gpuyard.workloads.task import Task

_LEARNING_RATE = 0.01
_HALF: dict[str | None, torch.dtype] = {"bf16": torch.bfloat16, "fp16": torch.float16}


class Trainer:
    """A task made ready to train: the module where it belongs, wrapped, with plain SGD."""

    def __init__(self, task: Task, job: TrainingJob, device: torch.device) -> None:
        self.module = task.model.to(device).train()
        trained = [p for p in self.module.parameters() if p.requires_grad]
        if not trained:
            raise UserMistake(f"{job.workload.model} has no parameters to train")
        self.gradient_bytes = sum(p.numel() * p.element_size() for p in trained)
        self._loss = task.loss
        self._device = device
        self._precision = job.workload.precision
        self._scaler = (
            torch.amp.GradScaler(device.type) if job.workload.precision == "fp16" else None
        )
        self._strategy = job.strategy if job.workers > 1 else "none"
        self._remedy = job.remedy
        self._passes = 0
        self._alone = False
        self._computes = job.synthetic is None
        # a synthetic GPU takes its dilated time by itself
        self._stretch = _Stretch(self.module, job.dilation if self._computes else 1.0)
        self._average: ParameterAverage | None = None
        self._model: nn.Module = self.module
        self._optimizer: Optimizer = SGD(trained, lr=_LEARNING_RATE)
        if job.optimizer == "adam":
            self._optimizer = build_optimizer(self.module)
        match self._strategy:
            case "ddp" if self._remedy.local_sgd > 1:
                self._average = ParameterAverage(self.module, job.remedy)
            case "ddp":
                self._model = _distributed(self.module, job.remedy, device)
            case "dataparallel":
                self._model = DataParallel(self.module, device_ids=list(range(job.workers)))
            case "horovod":
                self._optimizer = _horovod_optimizer(self.module, self._optimizer, job.remedy)

    @property
    def period(self) -> int:
        """Steps from one exchange to the next: only whole periods are worth timing."""
        return self._remedy.period

    def step(self, inputs: tuple[Tensor, ...], target: Tensor) -> Tensor:
        """Forward, backward with the exchange of gradients, update; returns the loss.

        With accumulation only every so many of them exchange and update.
        """
        self._stretch.catch_up()
        begins = self._passes % self._remedy.accumulate == 0
        self._passes += 1
        updates = self._passes % self._remedy.accumulate == 0
        if begins:
            self._optimizer.zero_grad()
        with self._exchanging(updates):
            with self.autocast():
                loss = self._loss(self._model(*inputs), target)
            self._stretch.catch_up()
            self._backward(loss / self._remedy.accumulate)
        if updates and self._computes:
            self._update()
        self._stretch.catch_up()
        if self._average is not None and not self._alone and self._passes % self.period == 0:
            self._average.average()
        self._stretch.rest()
        return loss.detach()

    def rest(self) -> None:
        """What was waited for until now is not computing."""
        self._stretch.rest()

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Steps in here exchange nothing and, with a learning rate of 0, change nothing.

        They compute as much as others do, and the ranks' parameters stay equal.
        """
        before = self._model, self._optimizer, self._scaler
        with ExitStack() as until_end:
            if isinstance(self._model, DistributedDataParallel):
                until_end.enter_context(self._model.no_sync())
            elif self._strategy == "dataparallel":
                self._model = self.module
            elif self._strategy == "horovod":  # its hooks on the parameters cannot be paused
                self._model = _unhooked(self.module)
            self._optimizer = SGD(self._model.parameters(), lr=0.0)
            if self._scaler is not None:
                self._scaler = torch.amp.GradScaler(
                    self._device.type, init_scale=self._scaler.get_scale()
                )
            self._alone = True
            try:
                yield
            finally:
                self._alone = False
                self._model, self._optimizer, self._scaler = before
                self._optimizer.zero_grad()

    def _exchanging(self, updates: bool) -> AbstractContextManager[Any]:
        if isinstance(self._model, DistributedDataParallel) and not updates:
            return self._model.no_sync()
        return nullcontext()

    def _backward(self, loss: Tensor) -> None:
        scaled = loss if self._scaler is None else self._scaler.scale(loss)
        scaled.backward()  # type: ignore[no-untyped-call]

    def _update(self) -> None:
        if self._scaler is None:
            self._optimizer.step()
        else:
            self._scaler.step(self._optimizer)
            self._scaler.update()

    def autocast(self) -> AbstractContextManager[Any]:
        """In which forward passes run."""
        return autocast(self._precision, self._device)


class _Stretch:
    """Time dilation for real computation: what took a second of a core takes `dilation` seconds of the clock.

    In a lab whose links run at a tenth of their rate, computation has to take ten times as long too. It sleeps in
    backward as soon as a gradient is known and before it is handed on for exchange. Sleeping is counted from CPU
    time, so nodes that share a core each still look as if they had one of their own.
    """

    def __init__(self, module: nn.Module, dilation: float) -> None:
        self._dilation = dilation
        self._on = dilation > 1
        self._cpu_seconds = self._due = 0.0
        self.rest()
        if self._on:
            for parameter in module.parameters():
                if parameter.requires_grad:
                    parameter.register_hook(self._gradient_known)  # type: ignore[no-untyped-call]

    def catch_up(self) -> None:
        """Sleep until what was computed so far has taken as long as it should."""
        if not self._on:
            return
        cpu_seconds = time.thread_time()
        self._due += (cpu_seconds - self._cpu_seconds) * self._dilation
        self._cpu_seconds = cpu_seconds
        early_seconds = self._due - time.perf_counter()
        if early_seconds > 0:
            time.sleep(early_seconds)

    def rest(self) -> None:
        """Waiting for others is not computing: count from here."""
        self._cpu_seconds = time.thread_time()
        self._due = time.perf_counter()

    def _gradient_known(self, _gradient: Tensor) -> None:
        self.catch_up()


def parameter_checksum(module: nn.Module) -> str:
    """Equal where the parameters are (−0.0 counts as 0.0)."""
    checksum = 0
    for parameter in module.parameters():
        values = (parameter.detach().to("cpu", torch.float32) + 0.0).contiguous()
        checksum = zlib.crc32(values.numpy().data, checksum)
    return f"{checksum:08x}"


def autocast(precision: Precision | None, device: torch.device) -> AbstractContextManager[Any]:
    """Mixed precision, where that is asked for."""
    if precision not in _HALF:
        return nullcontext()
    return torch.autocast(device.type, dtype=_HALF[precision])


def set_precision(precision: Precision | None) -> None:
    """fp32 means fp32: convolutions on NVIDIA GPUs would use TF32 unasked. None, which nobody has decided:
    as PyTorch does."""
    if precision is None:
        return
    torch.set_float32_matmul_precision("high" if precision == "tf32" else "highest")
    if torch.cuda.is_available():
        torch.backends.cudnn.allow_tf32 = precision == "tf32"


def _distributed(
    module: nn.Module, remedy: ExchangeOptions, device: torch.device
) -> DistributedDataParallel:
    ids = [device.index] if device.type == "cuda" else None
    model = DistributedDataParallel(module, device_ids=ids, bucket_cap_mb=remedy.bucket_mb)
    compress_gradients(model, remedy)
    return model


def _horovod_optimizer(
    module: nn.Module, optimizer: Optimizer, remedy: ExchangeOptions
) -> Optimizer:
    import horovod.torch as hvd  # type: ignore[import-not-found]

    hvd.init()
    hvd.broadcast_parameters(module.state_dict(), root_rank=0)
    wrapped: Optimizer = hvd.DistributedOptimizer(
        optimizer,
        named_parameters=module.named_parameters(),
        compression=hvd.Compression.fp16 if remedy.half else hvd.Compression.none,
        backward_passes_per_step=remedy.accumulate,
    )
    return wrapped


def _unhooked(module: nn.Module) -> nn.Module:
    return copy.deepcopy(module)


def compress_gradients(model: DistributedDataParallel, remedy: ExchangeOptions) -> None:
    """Register the hook that the remedy asks for, if it asks for one."""
    if remedy.powersgd_rank is not None:
        # from the second step on; torch itself would wait for the thousandth, longer than a bench runs
        state = powersgd.PowerSGDState(
            process_group=None,
            matrix_approximation_rank=remedy.powersgd_rank,
            start_powerSGD_iter=2,
        )
        model.register_comm_hook(state, powersgd.powerSGD_hook)
    elif remedy.half is not None:
        model.register_comm_hook(_HALF[remedy.half], _half_precision_hook)


def _half_precision_hook(
    dtype: torch.dtype,
    bucket: dist.GradBucket,  # type: ignore[name-defined]  # DDP looks at this annotation
) -> torch.futures.Future[Tensor]:
    # torch's own bf16 hook asks for CUDA; the mean is taken before the cast, so that no sum overflows
    gradients: Tensor = bucket.buffer()
    sent = (gradients / dist.get_world_size()).to(dtype)
    work: Any = dist.all_reduce(sent, async_op=True)

    def decompress(_future: torch.futures.Future[Any]) -> Tensor:
        gradients.copy_(sent)
        return gradients

    return work.get_future().then(decompress)  # type: ignore[no-any-return]


class ParameterAverage:
    """Local SGD: what every rank has changed since the last time is averaged over the ranks."""

    def __init__(self, module: nn.Module, remedy: ExchangeOptions) -> None:
        self._parameters = [p for p in module.parameters() if p.requires_grad]
        self._dtype = _HALF.get(remedy.half, torch.float32)
        for parameter in self._parameters:
            dist.broadcast(parameter.detach(), src=0)
        self._agreed = self._flat()

    def average(self) -> None:
        # changes, not parameters, are rounded to 16 bits: they are small, and rounding stays so too
        change = (self._flat() - self._agreed).div_(dist.get_world_size()).to(self._dtype)
        dist.all_reduce(change)
        self._agreed += change
        offset = 0
        with torch.no_grad():
            for parameter in self._parameters:
                count = parameter.numel()
                parameter.copy_(self._agreed[offset : offset + count].view_as(parameter))
                offset += count

    def _flat(self) -> Tensor:
        return torch.cat([p.detach().reshape(-1) for p in self._parameters])
