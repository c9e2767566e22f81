"""The lock as a Dockerfile, for those who prefer containers; the driver is the host's, as always."""

from typing import Literal

from gpuyard.deploy.stack.lock import Lock, framework_of, numbers
from gpuyard.errors import UserMistake

BaseName = Literal["debian", "ubuntu", "cuda"]
# whose own Python is one that frameworks have packages for
_IMAGES = {"debian": ("debian:12", "3.11"), "ubuntu": ("ubuntu:24.04", "3.12")}
_CUDA = "ubuntu24.04"


def image(lock: Lock, base: str) -> tuple[str, str]:
    """What it starts from, and that one's Python."""
    if base == "cuda":  # with CUDA's compiler in it, for extensions
        version = ".".join(str(part) for part in (*numbers(lock.cuda.version), 0)[:3])
        return f"nvidia/cuda:{version}-devel-{_CUDA}", "3.12"
    if base not in _IMAGES:
        raise UserMistake(f"expected one of debian, ubuntu and cuda, got {base!r}")
    return _IMAGES[base]


def dockerfile(lock: Lock, name: str, *, base: str = "debian", gpu: bool = True) -> str:
    """With the same list as everywhere."""
    framework = framework_of(lock, name)
    start, python = image(lock, base)
    if python not in framework.pythons:
        raise UserMistake(
            f"{name} has packages for Python {', '.join(framework.pythons)}, and {start} has {python}; "
            "start from another with --from"
        )
    family = lock.family(framework.cuda) if gpu else None
    index = framework.index(gpu=gpu)
    pip = " ".join(["--no-cache-dir --no-deps", *([f"--extra-index-url {index}"] if index else [])])
    packages = " ".join(("ca-certificates", "python3", "python3-venv", *framework.libraries))
    pins = " \\\n        ".join(framework.pinned(gpu=gpu))
    lines = [
        f"# {name} {framework.version}, of gpuyard's lock {lock.name} ({lock.date})",
        *(
            [f"# needs NVIDIA driver {family.minimum_driver} or later on the host"]
            if family
            else []
        ),
        f"FROM {start}",
        "RUN apt-get update \\",
        f" && DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends {packages} \\",
        " && rm -rf /var/lib/apt/lists/*",
        f"RUN python3 -m venv /opt/gpuyard/{name} \\",
        f" && /opt/gpuyard/{name}/bin/pip install {pip} \\",
        f"        {pins}",
        f"ENV PATH=/opt/gpuyard/{name}/bin:$PATH",
        # what nvidia-container-toolkit is told: all GPUs that the container is given, for computing
        *(
            ["ENV NVIDIA_VISIBLE_DEVICES=all NVIDIA_DRIVER_CAPABILITIES=compute,utility"]
            if family
            else []
        ),
        f'LABEL gpuyard.lock="{lock.name}"',
    ]
    return "".join(f"{line}\n" for line in lines)
