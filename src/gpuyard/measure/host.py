"""The machine that a measurement is made on, and the versions that it is made with."""

import hashlib
import importlib.metadata
import json
import platform
import socket
from dataclasses import asdict, dataclass

import psutil

from gpuyard.hardware.cpu import cpu_model, os_name, usable_cores
from gpuyard.run.probe import cuda_gpus


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
