"""Runs training steps under each strategy, with and without gradient exchange.

It also implements the remedies that replace plain fp32 gradients: compression hooks and parameter averaging.
"""

import copy
import time
import zlib
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from typing import Any, cast

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.algorithms.ddp_comm_hooks import powerSGD_hook as powersgd
from torch.distributed.tensor import DTensor
from torch.nn.parallel import DataParallel, DistributedDataParallel
from torch.optim import SGD, Optimizer

from gpuyard.errors import UserMistake
from gpuyard.measure.convergence.recipe import build_optimizer
from gpuyard.measure.training.divided import Pipeline, divide_heads, shard_module
from gpuyard.measure.training.records import TrainingJob
from gpuyard.measure.training.strategies import DIVIDING_STRATEGIES
from gpuyard.specs import ExchangeOptions, Precision
from gpuyard.workloads.task import Task
from gpuyard.workloads.zoo.gpt2 import Gpt2

_LEARNING_RATE = 0.01
_HALF: dict[str | None, torch.dtype] = {"bf16": torch.bfloat16, "fp16": torch.float16}


class Trainer:
    """Trains a task: holds its module on the device, wrapped for the strategy, and an optimizer."""

    def __init__(self, task: Task, job: TrainingJob, device: torch.device) -> None:
        self.module = task.model.to(device).train()
        trainable = [p for p in self.module.parameters() if p.requires_grad]
        if not trainable:
            raise UserMistake(f"{job.workload.model_name} has no trainable parameters")
        self.gradient_bytes = sum(p.numel() * p.element_size() for p in trainable)
        self._loss = task.loss
        self._device = device
        self._precision = job.workload.precision
        self._scaler = (
            torch.amp.GradScaler(device.type) if job.workload.precision == "fp16" else None
        )
        self._strategy = job.strategy if job.workers > 1 else "none"
        self._remedy = job.remedy
        self._passes = 0
        self._exchange_enabled = True
        self._computes = job.synthetic is None
        # a synthetic GPU already sleeps for its dilated time
        self._dilation = _TimeDilation(self.module, job.dilation if self._computes else 1.0)
        self._averager: ParameterAverager | None = None
        self._whole: nn.Module | None = None
        self._pipeline: Pipeline | None = None
        if self._strategy in DIVIDING_STRATEGIES:
            self._whole = copy.deepcopy(self.module)
            self._divide(job, device)
            # the optimizer holds only this rank's part
            trainable = [p for p in self.module.parameters() if p.requires_grad]
        self._model: nn.Module = self.module
        # tensor groups divide some parameters only, which one fused update cannot mix
        foreach = False if self._strategy == "tensor" else None
        self._optimizer: Optimizer = SGD(trainable, lr=_LEARNING_RATE, foreach=foreach)
        if job.optimizer == "adam":
            self._optimizer = build_optimizer(self.module)
        match self._strategy:
            case "ddp" if self._remedy.local_sgd > 1:
                self._averager = ParameterAverager(self.module, job.remedy)
            case "ddp":
                self._model = _wrap_ddp(self.module, job.remedy, device)
            case "dataparallel":
                self._model = DataParallel(self.module, device_ids=list(range(job.workers)))
            case "horovod":
                self._optimizer = _wrap_horovod(self.module, self._optimizer, job.remedy)

    def _divide(self, job: TrainingJob, device: torch.device) -> None:
        match self._strategy:
            case "fsdp":
                shard_module(self.module, device)
            case "tensor":
                torch.manual_seed(job.seed)  # ranks of a tensor group drop the same activations
                divide_heads(self.module, device)
            case "pipeline":
                model = cast("Gpt2", self.module)  # checked when the sweep was planned
                self._pipeline = Pipeline(model, self._loss, device)

    @property
    def period(self) -> int:
        """The number of steps from one exchange to the next; only whole periods can be compared."""
        return self._remedy.period

    def step(self, inputs: tuple[Tensor, ...], target: Tensor) -> Tensor:
        """Run forward and backward, exchange gradients, update the parameters, and return the loss.

        With gradient accumulation, only the last step of each period exchanges and updates.
        """
        self._dilation.catch_up()
        starts_period = self._passes % self._remedy.accumulate == 0
        self._passes += 1
        updates = self._passes % self._remedy.accumulate == 0
        if starts_period:
            self._optimizer.zero_grad()
        with self._sync_context(updates):
            if self._pipeline is not None and self._exchange_enabled:
                with self.autocast():
                    loss = self._pipeline.run(inputs, target)
            else:
                with self.autocast():
                    loss = self._loss(self._model(*inputs), target)
                self._dilation.catch_up()
                self._backward(loss / self._remedy.accumulate)
        if updates and self._computes:
            self._update()
        elif updates and self._strategy == "horovod" and self._exchange_enabled:
            self._optimizer.synchronize()  # type: ignore[attr-defined]  # wait for the gradients
        self._dilation.catch_up()
        if (
            self._averager is not None
            and self._exchange_enabled
            and self._passes % self.period == 0
        ):
            self._averager.average()
        self._dilation.reset_clock()
        return loss.detach()

    def reset_clock(self) -> None:
        """Exclude the time spent waiting until now from time dilation."""
        self._dilation.reset_clock()

    @contextmanager
    def without_exchange(self) -> Iterator[None]:
        """Disable gradient exchange and, with a learning rate of 0, parameter updates.

        Steps inside compute as much as others do, and the ranks' parameters stay equal.
        """
        before = self._model, self._optimizer, self._scaler
        with ExitStack() as stack:
            if isinstance(self._model, DistributedDataParallel):
                stack.enter_context(self._model.no_sync())
            elif self._strategy == "dataparallel":
                self._model = self.module
            elif self._whole is not None:
                self._model = self._whole
            elif self._strategy == "horovod":  # a copy, because Horovod's hooks cannot be paused
                self._model = copy.deepcopy(self.module)
            self._optimizer = SGD(self._model.parameters(), lr=0.0)
            if self._scaler is not None:
                self._scaler = torch.amp.GradScaler(
                    self._device.type, init_scale=self._scaler.get_scale()
                )
            self._exchange_enabled = False
            try:
                yield
            finally:
                self._exchange_enabled = True
                self._model, self._optimizer, self._scaler = before
                self._optimizer.zero_grad()

    def _sync_context(self, updates: bool) -> AbstractContextManager[Any]:
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
        """Return the context in which forward passes run."""
        return autocast(self._precision, self._device)


class _TimeDilation:
    """Dilates real computation: one second of CPU time takes `dilation` seconds of wall-clock time.

    In a lab whose links run at a tenth of their rate, computation has to take ten times as long too. Backward
    sleeps as soon as a gradient is computed and before it is exchanged. The sleep follows from CPU time, so
    nodes that share a core each behave as if they had their own.
    """

    def __init__(self, module: nn.Module, dilation: float) -> None:
        self._dilation = dilation
        self._enabled = dilation > 1
        self._cpu_seconds = self._due = 0.0
        self.reset_clock()
        if self._enabled:
            for parameter in module.parameters():
                if parameter.requires_grad:
                    parameter.register_hook(lambda _gradient: self.catch_up())  # type: ignore[no-untyped-call]

    def catch_up(self) -> None:
        """Sleep until the computation so far has taken its dilated time."""
        if not self._enabled:
            return
        cpu_seconds = time.thread_time()
        self._due += (cpu_seconds - self._cpu_seconds) * self._dilation
        self._cpu_seconds = cpu_seconds
        early_seconds = self._due - time.perf_counter()
        if early_seconds > 0:
            time.sleep(early_seconds)

    def reset_clock(self) -> None:
        """Count from now, because waiting for other ranks is not computation."""
        self._cpu_seconds = time.thread_time()
        self._due = time.perf_counter()


def checksum_parameters(module: nn.Module) -> str:
    """Return a checksum that is equal for equal parameters (−0.0 counts as 0.0)."""
    checksum = 0
    for parameter in module.parameters():
        whole = parameter.full_tensor() if isinstance(parameter, DTensor) else parameter
        values = (whole.detach().to("cpu", torch.float32) + 0.0).contiguous()
        checksum = zlib.crc32(values.numpy().data, checksum)
    return f"{checksum:08x}"


def autocast(precision: Precision | None, device: torch.device) -> AbstractContextManager[Any]:
    """Return a mixed-precision context for bf16 and fp16, and one without effect otherwise."""
    if precision not in _HALF:
        return nullcontext()
    return torch.autocast(device.type, dtype=_HALF[precision])


def set_precision(precision: Precision | None) -> None:
    """Set PyTorch's precision: by default, fp32 convolutions on NVIDIA GPUs use TF32. None keeps PyTorch's default."""
    if precision is None:
        return
    torch.set_float32_matmul_precision("high" if precision == "tf32" else "highest")
    if torch.cuda.is_available():
        torch.backends.cudnn.allow_tf32 = precision == "tf32"


def _wrap_ddp(
    module: nn.Module, remedy: ExchangeOptions, device: torch.device
) -> DistributedDataParallel:
    ids = [device.index] if device.type == "cuda" else None
    model = DistributedDataParallel(module, device_ids=ids, bucket_cap_mb=remedy.bucket_mb)
    register_compression_hook(model, remedy)
    return model


def _wrap_horovod(module: nn.Module, optimizer: Optimizer, remedy: ExchangeOptions) -> Optimizer:
    import horovod.torch as hvd

    hvd.init()
    hvd.broadcast_parameters(module.state_dict(), root_rank=0)
    wrapped: Optimizer = hvd.DistributedOptimizer(
        optimizer,
        named_parameters=module.named_parameters(),
        compression=hvd.Compression.fp16 if remedy.half_precision else hvd.Compression.none,
        backward_passes_per_step=remedy.accumulate,
    )
    return wrapped


def register_compression_hook(model: DistributedDataParallel, remedy: ExchangeOptions) -> None:
    """Register the communication hook that the remedy needs, if any."""
    if remedy.powersgd_rank is not None:
        # compress from the second step on; torch's default is the thousandth, longer than a bench runs
        state = powersgd.PowerSGDState(
            process_group=None,
            matrix_approximation_rank=remedy.powersgd_rank,
            start_powerSGD_iter=2,
        )
        model.register_comm_hook(state, powersgd.powerSGD_hook)
    elif remedy.half_precision is not None:
        model.register_comm_hook(_HALF[remedy.half_precision], _half_precision_hook)


def _half_precision_hook(
    dtype: torch.dtype,
    bucket: dist.GradBucket,  # type: ignore[name-defined]  # DDP checks this annotation
) -> torch.futures.Future[Tensor]:
    # torch's own bf16 hook needs CUDA; dividing before the cast keeps sums from overflowing
    gradients: Tensor = bucket.buffer()
    sent = (gradients / dist.get_world_size()).to(dtype)
    work: Any = dist.all_reduce(sent, async_op=True)

    def decompress(_future: torch.futures.Future[Any]) -> Tensor:
        gradients.copy_(sent)
        return gradients

    return work.get_future().then(decompress)  # type: ignore[no-any-return]


class ParameterAverager:
    """Implements local SGD: averages over the ranks what each has changed since the last time."""

    def __init__(self, module: nn.Module, remedy: ExchangeOptions) -> None:
        self._parameters = [p for p in module.parameters() if p.requires_grad]
        self._dtype = _HALF.get(remedy.half_precision, torch.float32)
        for parameter in self._parameters:
            dist.broadcast(parameter.detach(), src=0)
        self._averaged = self._flatten()

    def average(self) -> None:
        # changes, not parameters, are rounded to 16 bits: they are small, so the error is small too
        change = (self._flatten() - self._averaged).div_(dist.get_world_size()).to(self._dtype)
        dist.all_reduce(change)
        self._averaged += change
        offset = 0
        with torch.no_grad():
            for parameter in self._parameters:
                count = parameter.numel()
                parameter.copy_(self._averaged[offset : offset + count].view_as(parameter))
                offset += count

    def _flatten(self) -> Tensor:
        return torch.cat([p.detach().reshape(-1) for p in self._parameters])
