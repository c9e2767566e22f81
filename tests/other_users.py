"""Provide a gpuyard that every Unix user can run, for tests with several users: this one, or a copy if others cannot read it."""

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
class PublicInstall:
    """A Python interpreter, and the variables by which it finds gpuyard and its dependencies."""

    python: str
    environment: Mapping[str, str]


@functools.cache
def public_gpuyard(*extras: str) -> PublicInstall:
    """Return an installation with some packages of extras, which exists until this process exits."""
    dependencies: dict[str, Distribution] = {}
    for name in ("gpuyard", *extras):
        dependencies[name] = distribution(name)
        _find_dependencies(name, dependencies)
    del dependencies["gpuyard"]  # its own files are in src
    packages = list(dependencies.values())
    paths = [
        ROOT / "src",
        *dict.fromkeys(Path(str(package.locate_file(""))) for package in packages),
    ]
    if not all(_is_open_to_all(path) for path in (paths[0] / "gpuyard/__init__.py", *paths)):
        paths = [_copy_packages(packages)]
    python, variables = _find_python()
    return PublicInstall(python, {"PYTHONPATH": ":".join(map(str, paths)), **variables})


def _find_python() -> tuple[str, dict[str, str]]:
    """Return this interpreter, the system's with the same version, or a copy, and the variables that it needs."""
    here = Path(sys.executable)
    if _is_open_to_all(here) and _is_open_to_all(here.resolve()):
        return str(here), {}
    system_python = shutil.which(f"python{_VERSION}", path="/usr/local/bin:/usr/bin")
    if system_python:
        return system_python, {}
    base, copy = Path(sys.base_prefix), _create_directory()
    (copy / "bin").mkdir()
    shutil.copy(here.resolve(), copy / "bin/python")
    ignored = shutil.ignore_patterns("site-packages", "test", "__pycache__", f"config-{_VERSION}*")
    shutil.copytree(base / f"lib/python{_VERSION}", copy / f"lib/python{_VERSION}", ignore=ignored)
    for library in (base / "lib").glob("libpython*.so*"):
        shutil.copy(library, copy / "lib")
    _open_to_all(copy)
    return str(copy / "bin/python"), {"LD_LIBRARY_PATH": str(copy / "lib")}


def _find_dependencies(
    name: str, dependencies: dict[str, Distribution] | None = None
) -> list[Distribution]:
    """Return a package's direct and indirect dependencies without extras."""
    dependencies = {} if dependencies is None else dependencies
    for requirement in distribution(name).requires or ():
        match = _NAME.match(requirement)
        if match is None or "extra ==" in requirement or match[0].lower() in dependencies:
            continue
        try:
            dependencies[match[0].lower()] = distribution(match[0])
        except PackageNotFoundError:  # for another system or version
            continue
        _find_dependencies(match[0], dependencies)
    return list(dependencies.values())


def _copy_packages(packages: list[Distribution]) -> Path:
    copy = _create_directory()
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


def _create_directory() -> Path:
    directory = Path(tempfile.mkdtemp(prefix="gpuyard-for-all-users-", dir="/var/tmp"))
    atexit.register(shutil.rmtree, directory, ignore_errors=True)
    return directory


def _open_to_all(directory: Path) -> None:
    for path in (directory, *directory.rglob("*")):
        path.chmod(0o755 if path.is_dir() or os.access(path, os.X_OK) else 0o644)


def _is_open_to_all(path: Path) -> bool:
    return bool(path.stat().st_mode & 0o004) and all(
        parent.stat().st_mode & 0o001 for parent in path.parents
    )
