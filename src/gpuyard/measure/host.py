"""The machine that a measurement is made on, and the versions that it is made with."""

import hashlib
import importlib.metadata
import json
import platform
import shutil
import socket
from dataclasses import asdict, dataclass
from pathlib import Path

import psutil

from gpuyard.hardware.cpu import cpu_model, os_name, usable_cores


@dataclass(frozen=True)
class Host:
    """What has to be the same for two measurements to be comparable."""

    host: str
    os: str
    kernel: str
    cpu_model: str
    cores: int
    memory_bytes: int
    gpus: tuple[str, ...]

    def fingerprint(self) -> str:
        """Changes with the hardware, not with a kernel update."""
        hardware = {k: v for k, v in asdict(self).items() if k not in {"os", "kernel"}}
        return hashlib.sha256(json.dumps(hardware, sort_keys=True).encode()).hexdigest()[:16]


def this_host() -> Host:
    """Look at this machine."""
    return Host(
        host=socket.gethostname(),
        os=os_name(),
        kernel=platform.release(),
        cpu_model=cpu_model(),
        cores=len(usable_cores()),
        memory_bytes=psutil.virtual_memory().total,
        gpus=cuda_gpus(),
    )


def torch_version() -> str:
    """Without importing it, which takes seconds."""
    try:
        return importlib.metadata.version("torch")
    except importlib.metadata.PackageNotFoundError:
        return "none"


def cuda_gpus() -> tuple[str, ...]:
    """The GPUs that torch can use; torch is only imported where a driver is."""
    driver = any(Path(device).exists() for device in ("/dev/nvidiactl", "/dev/dxg", "/dev/kfd"))
    if not driver and shutil.which("nvidia-smi") is None:
        return ()
    try:
        import torch
    except ImportError:
        return ()
    if not torch.cuda.is_available():
        return ()
    return tuple(torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count()))
