"""gpuyard itself and the versions that it runs with here, for machines that get an environment of their own."""

import gzip
import tarfile
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import Any

from gpuyard.files import replacing

_PACKAGE = Path(__file__).parents[2]
_TRAINING = ("torch", "numpy")


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
    return {"training_archive": str(archive), "training_packages": pinned()}


def pinned() -> list[str]:
    """What gpuyard and training need, at the versions that are installed here."""
    wanted, found = ["gpuyard", *_TRAINING], {}
    while wanted:
        name = wanted.pop()
        if name in found:
            continue
        try:
            known = distribution(name)
        except PackageNotFoundError:  # of another platform, or of an extra that is not installed
            continue
        found[name] = known.version.partition("+")[0]  # 2.13.0+cpu is 2.13.0 for a GPU's build
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
