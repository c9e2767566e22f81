"""What goes over the links instead of plain fp32 gradients: communication hooks, and averaged parameters."""

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.algorithms.ddp_comm_hooks import powerSGD_hook as powersgd
from torch.nn.parallel import DistributedDataParallel

from gpuyard.specs import ExchangeOptions

_HALF = {"fp16": torch.float16, "bf16": torch.bfloat16}


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
        self._dtype = _HALF.get(remedy.half or "", torch.float32)
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
