"""Render the lock as a Dockerfile, for users who prefer containers. The driver always belongs to the host."""

from gpuyard.deploy.stack.lock import Lock, find_framework, parse_version
from gpuyard.errors import UserMistake

# Images whose Python version the frameworks support.
_IMAGES = {"debian": ("debian:12", "3.11"), "ubuntu": ("ubuntu:24.04", "3.12")}
_CUDA = "ubuntu24.04"


def _choose_image(lock: Lock, base: str) -> tuple[str, str]:
    """Return the base image and its Python version."""
    if base == "cuda":  # includes CUDA's compiler, for extensions
        version = ".".join(str(part) for part in (*parse_version(lock.cuda.version), 0)[:3])
        return f"nvidia/cuda:{version}-devel-{_CUDA}", "3.12"
    if base not in _IMAGES:
        raise UserMistake(f"expected debian, ubuntu, or cuda, got {base!r}")
    return _IMAGES[base]


def render_dockerfile(lock: Lock, name: str, *, base: str = "debian", gpu: bool = True) -> str:
    framework = find_framework(lock, name)
    image, python = _choose_image(lock, base)
    if python not in framework.pythons:
        raise UserMistake(
            f"{name} has packages for Python {', '.join(framework.pythons)}, and {image} has {python}; "
            "choose another image with --from"
        )
    family = lock.family(framework.cuda) if gpu else None
    index = framework.index(gpu=gpu)
    pip = " ".join(["--no-cache-dir --no-deps", *([f"--extra-index-url {index}"] if index else [])])
    packages = " ".join(("ca-certificates", "python3", "python3-venv", *framework.libraries))
    pins = " \\\n        ".join(framework.pins(gpu=gpu))
    lines = [
        f"# {name} {framework.version}, from gpuyard's lock {lock.name} ({lock.date})",
        *(
            [f"# needs NVIDIA driver {family.minimum_driver} or later on the host"]
            if family
            else []
        ),
        f"FROM {image}",
        "RUN apt-get update \\",
        f" && DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends {packages} \\",
        " && rm -rf /var/lib/apt/lists/*",
        f"RUN python3 -m venv /opt/gpuyard/{name} \\",
        f" && /opt/gpuyard/{name}/bin/pip install {pip} \\",
        f"        {pins}",
        f"ENV PATH=/opt/gpuyard/{name}/bin:$PATH",
        # For nvidia-container-toolkit: make all GPUs of the container available for computing.
        *(
            ["ENV NVIDIA_VISIBLE_DEVICES=all NVIDIA_DRIVER_CAPABILITIES=compute,utility"]
            if family
            else []
        ),
        f'LABEL gpuyard.lock="{lock.name}"',
    ]
    return "".join(f"{line}\n" for line in lines)
