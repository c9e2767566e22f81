"""A gpuyard that every Unix user can run, for tests that make some: this one, or a copy of it where they can't get to it."""

import atexit
import functools
import os
import re
import shutil
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path

ROOT = Path(__file__).parents[1]
_VERSION = f"{sys.version_info.major}.{sys.version_info.minor}"
_NAME = re.compile(r"[A-Za-z0-9._-]+")


@dataclass(frozen=True)
class Everybodys:
    """A Python, and the variables by which it finds gpuyard and what that needs."""

    python: str
    environment: Mapping[str, str]


@functools.cache
def everybodys_gpuyard() -> Everybodys:
    """Made once for all tests of this process, and removed with it."""
    packages = _packages("gpuyard")
    paths = [ROOT / "src", *dict.fromkeys(Path(str(one.locate_file(""))) for one in packages)]
    if not all(_is_open_to_all(path) for path in (paths[0] / "gpuyard/__init__.py", *paths)):
        paths = [_copied(packages)]
    python, more = _python()
    return Everybodys(python, {"PYTHONPATH": ":".join(map(str, paths)), **more})


def _python() -> tuple[str, dict[str, str]]:
    """This one, else the system's of the same version, else a copy."""
    here = Path(sys.executable)
    if _is_open_to_all(here) and _is_open_to_all(here.resolve()):
        return str(here), {}
    found = shutil.which(f"python{_VERSION}", path="/usr/local/bin:/usr/bin")
    if found:
        return found, {}
    base, copy = Path(sys.base_prefix), _directory()
    (copy / "bin").mkdir()
    shutil.copy(here.resolve(), copy / "bin/python")
    ignored = shutil.ignore_patterns("site-packages", "test", "__pycache__", f"config-{_VERSION}*")
    shutil.copytree(base / f"lib/python{_VERSION}", copy / f"lib/python{_VERSION}", ignore=ignored)
    for library in (base / "lib").glob("libpython*.so*"):
        shutil.copy(library, copy / "lib")
    _open_to_all(copy)
    return str(copy / "bin/python"), {"LD_LIBRARY_PATH": str(copy / "lib")}


def _packages(name: str, known: dict[str, Distribution] | None = None) -> list[Distribution]:
    """What it needs without any extra, and what these need; not itself."""
    found = {} if known is None else known
    for requirement in distribution(name).requires or ():
        needed = _NAME.match(requirement)
        if needed is None or "extra ==" in requirement or needed[0].lower() in found:
            continue
        try:
            found[needed[0].lower()] = distribution(needed[0])
        except PackageNotFoundError:  # for another system or version
            continue
        _packages(needed[0], found)
    return list(found.values())


def _copied(packages: list[Distribution]) -> Path:
    copy = _directory()
    shutil.copytree(
        ROOT / "src/gpuyard", copy / "gpuyard", ignore=shutil.ignore_patterns("__pycache__")
    )
    for package in packages:
        for file in package.files or ():
            if ".." not in file.parts and file.suffix != ".pyc":  # no programs, no caches
                (copy / file).parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(str(package.locate_file(file)), copy / file)
    _open_to_all(copy)
    return copy


def _directory() -> Path:
    directory = Path(tempfile.mkdtemp(prefix="gpuyard-for-everybody-", dir="/var/tmp"))
    atexit.register(shutil.rmtree, directory, ignore_errors=True)
    return directory


def _open_to_all(directory: Path) -> None:
    for path in (directory, *directory.rglob("*")):
        path.chmod(0o755 if path.is_dir() or os.access(path, os.X_OK) else 0o644)


def _is_open_to_all(path: Path) -> bool:
    return bool(path.stat().st_mode & 0o004) and all(
        parent.stat().st_mode & 0o001 for parent in path.parents
    )
