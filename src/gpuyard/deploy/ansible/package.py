"""gpuyard itself and the versions that it runs with here, for machines that get an environment of their own."""

import gzip
import tarfile
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import Any

from gpuyard.deploy.stack.lock import Lock, framework_of
from gpuyard.files import replacing
from gpuyard.specs.deployment import FrameworkName

_PACKAGE = Path(__file__).parents[2]
_IMAGES = ("pillow==13.0.0",)  # whether the machine that deploys decodes images or not, others do


def package_to_install(directory: Path) -> dict[str, Any]:
    """What the role `training` is told: the same bytes and the same versions as long as nothing here has changed."""
    archive = directory / "gpuyard.tar.gz"
    with (
        replacing(archive) as file,
        gzip.GzipFile(fileobj=file, mode="wb", mtime=0) as squeezed,
        tarfile.open(fileobj=squeezed, mode="w") as packed,
    ):
        for path in sorted(_PACKAGE.rglob("*")):
            if path.is_file() and "__pycache__" not in path.parts:
                packed.add(path, f"gpuyard/{path.relative_to(_PACKAGE)}", filter=_plain)
    return {"training_archive": str(archive)}


def environments(lock: Lock, framework: FrameworkName, *, horovod: bool) -> dict[str, Any]:
    """What the role `training` installs: gpuyard with PyTorch, which it measures with, and the framework of choice."""
    own = described_framework(lock, "pytorch") | {"name": "venv"}
    more = lock.horovod.requirements if horovod else ()
    own |= {kind: merged(pinned(), own[kind], more, _IMAGES) for kind in ("gpu", "cpu")}
    chosen = [] if framework == "pytorch" else [described_framework(lock, framework)]
    return {
        "training_environments": [own, *chosen],
        "training_horovod": horovod,
    }


def described_framework(lock: Lock, name: str) -> dict[str, Any]:
    """As the role gpu-stack installs it."""
    framework = framework_of(lock, name)
    return {
        "name": name,
        "package": framework.package,
        "pythons": list(framework.pythons),
        "libraries": list(framework.libraries),
        "gpu": list(framework.pinned(gpu=True)),
        "cpu": list(framework.pinned(gpu=False)),
        "cpu_index": framework.cpu_index,
    }


def merged(*lists: Sequence[str]) -> list[str]:
    """One pin for each package: that of the last list which has it."""
    pins = {pin.split("==")[0]: pin for pins in lists for pin in pins}
    return sorted(pins.values())


def pinned() -> list[str]:
    """What gpuyard needs, at the versions that are installed here."""
    wanted, found = ["gpuyard"], {}
    while wanted:
        name = wanted.pop()
        if name in found:
            continue
        try:
            known = distribution(name)
        except PackageNotFoundError:  # of another platform, or of an extra that is not installed
            continue
        found[name] = known.version.partition("+")[0]
        wanted += [_name(line) for line in known.requires or () if "extra ==" not in line]
    del found["gpuyard"]  # it comes as an archive
    return [f"{name}=={version}" for name, version in sorted(found.items())]


def _name(requirement: str) -> str:
    end = next((i for i, c in enumerate(requirement) if not (c.isalnum() or c in "-_.")), None)
    return requirement[:end].lower()


def _plain(member: tarfile.TarInfo) -> tarfile.TarInfo:
    member.uid = member.gid = member.mtime = 0
    member.uname = member.gname = "root"
    member.mode = 0o644
    return member
