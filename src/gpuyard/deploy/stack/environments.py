"""The Python environments that the role `training` installs: gpuyard itself, and the packages it needs."""

import gzip
import tarfile
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import Any

from gpuyard.deploy.stack.lock import Lock, find_framework
from gpuyard.files import replace_file
from gpuyard.specs.deployment import FrameworkName

_PACKAGE = Path(__file__).parents[2]
_IMAGES = ("pillow==13.0.0",)  # deployed machines decode images even if this one cannot


def pack_gpuyard(directory: Path) -> dict[str, Any]:
    """Pack gpuyard into an archive for the role `training`; the same sources give the same bytes."""
    archive = directory / "gpuyard.tar.gz"
    with (
        replace_file(archive) as file,
        gzip.GzipFile(fileobj=file, mode="wb", mtime=0) as compressed,
        tarfile.open(fileobj=compressed, mode="w") as tar,
    ):
        for path in sorted(_PACKAGE.rglob("*")):
            if path.is_file() and "__pycache__" not in path.parts:
                tar.add(path, f"gpuyard/{path.relative_to(_PACKAGE)}", filter=_clear_metadata)
    return {"training_archive": str(archive)}


def describe_environments(lock: Lock, framework: FrameworkName, *, horovod: bool) -> dict[str, Any]:
    """Return the role's variables: gpuyard with PyTorch, which it uses to measure, and the chosen framework."""
    own = describe_framework(lock, "pytorch") | {"name": "venv"}
    more = lock.horovod.requirements if horovod else ()
    installed = pin_installed()
    own |= {kind: merge_pins(installed, own[kind], more, _IMAGES) for kind in ("gpu", "cpu")}
    chosen = [] if framework == "pytorch" else [describe_framework(lock, framework)]
    return {
        "training_environments": [own, *chosen],
        "training_horovod": horovod,
    }


def describe_framework(lock: Lock, name: str) -> dict[str, Any]:
    """Return a framework as a variable of the role gpu-stack."""
    framework = find_framework(lock, name)
    return {
        "name": name,
        "package": framework.package,
        "pythons": list(framework.pythons),
        "libraries": list(framework.libraries),
        "gpu": list(framework.pins(gpu=True)),
        "cpu": list(framework.pins(gpu=False)),
        "cpu_index": framework.cpu_index,
    }


def merge_pins(*lists: Sequence[str]) -> list[str]:
    """Return one pin per package, from the last list that has it."""
    pins = {pin.split("==")[0]: pin for pins in lists for pin in pins}
    return sorted(pins.values())


def pin_installed() -> list[str]:
    """Return pins of gpuyard's dependencies at the versions that are installed here."""
    pending, versions = ["gpuyard"], {}
    while pending:
        name = pending.pop()
        if name in versions:
            continue
        try:
            package = distribution(name)
        except PackageNotFoundError:  # for another platform, or an extra that is not installed
            continue
        versions[name] = package.version.partition("+")[0]
        pending += [_parse_name(line) for line in package.requires or () if "extra ==" not in line]
    del versions["gpuyard"]  # it comes as an archive
    return [f"{name}=={version}" for name, version in sorted(versions.items())]


def _parse_name(requirement: str) -> str:
    end = next((i for i, c in enumerate(requirement) if not (c.isalnum() or c in "-_.")), None)
    return requirement[:end].lower()


def _clear_metadata(member: tarfile.TarInfo) -> tarfile.TarInfo:
    member.uid = member.gid = member.mtime = 0
    member.uname = member.gname = "root"
    member.mode = 0o644
    return member
