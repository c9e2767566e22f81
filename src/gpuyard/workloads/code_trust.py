"""The code that a workload names: where it is, and whether gpuyard may run it.

A spec is data until code that it names is imported. gpuyard runs code from the user's own project, and code from
elsewhere only with permission. docs/security.md explains the rule.
"""

import contextlib
import hashlib
import os
import pwd
import stat
import sys
from contextvars import ContextVar
from importlib.machinery import PathFinder
from pathlib import Path

from gpuyard.errors import CodeNotAllowed
from gpuyard.specs import Workload
from gpuyard.workloads.disk_images import is_on_disk
from gpuyard.workloads.zoo import MODELS

_ORIGIN_ATTRIBUTE = "user.xdg.origin.url"  # set by browsers, wget --xattr, and curl --xattr
_EVERY_FILE = frozenset([Path("/")])
_allowed: ContextVar[frozenset[Path]] = ContextVar("_allowed", default=frozenset())
"""Specs, and directories of specs, whose code may run wherever they are."""


def allow_code(path: Path | None = None) -> None:
    """Allow the code of one spec, or of all specs, in this context from now on."""
    _allowed.set(_EVERY_FILE if path is None else _allowed.get() | {path.resolve()})


def user_code(workload: Workload) -> tuple[str, ...]:
    """Return each module:factory that the workload names, except gpuyard's own models."""
    source = workload.dataset.source if workload.dataset else ""
    references = (workload.model_name, "" if is_on_disk(source) else source)
    built_in = set(MODELS.values())
    return tuple(name for name in references if ":" in name and name not in built_in)


def code_directories(workload: Workload) -> tuple[Path, ...]:
    """Return the directories searched after all installed packages: the current and the spec's."""
    spec_directory = [workload.file.parent.resolve()] if workload.file else []
    return tuple(dict.fromkeys([Path.cwd(), *spec_directory]))


def find_module(reference: str, directories: tuple[Path, ...]) -> Path | None:
    """Return the file of a module:factory without importing it, or None if there is none."""
    *_, file = [None, *_find_imported_files(reference, directories)]
    return file


def _find_imported_files(reference: str, directories: tuple[Path, ...]) -> tuple[Path | None, ...]:
    """Return the files that the import of a module runs, one for each part of its name.

    A package without `__init__.py` has None, and so has the first part that does not exist.
    """
    search_path = [*sys.path, *map(str, directories)]
    files: list[Path | None] = []
    for name in reference.partition(":")[0].split("."):
        spec = PathFinder.find_spec(name, search_path)  # a full name needs imported parents
        file = Path(spec.origin) if spec and spec.origin else None
        files.append(file if file is not None and file.is_file() else None)
        if spec is None:
            break
        search_path = list(spec.submodule_search_locations or [])
    return tuple(files)


def code_digest(reference: str, workload: Workload) -> str | None:
    """Hash the file of a module:factory, because measurements are equal only if their code is."""
    file = find_module(reference, code_directories(workload))
    return None if file is None else hashlib.sha256(file.read_bytes()).hexdigest()[:16]


def check_allowed(workload: Workload) -> None:
    """Raise CodeNotAllowed if the workload's code is neither the user's own nor allowed."""
    references = user_code(workload)
    if not references or workload.file is None:  # without a file, a program named the code
        return
    spec_path = workload.file.resolve()
    if any(spec_path.is_relative_to(path) for path in _allowed.get()):
        return
    directories = code_directories(workload)
    modules = {reference: find_module(reference, directories) for reference in references}
    not_installed = [
        file
        for name in references
        for file in _find_imported_files(name, directories)
        if file is not None and file not in _find_imported_files(name, ())
    ]
    for file in (workload.file, *not_installed):
        reason = _why_untrusted(file)
        if reason is not None:
            code = ", ".join(f"{name} ({file})" if file else name for name, file in modules.items())
            subject = "it" if file == workload.file else str(file)
            raise CodeNotAllowed(workload.file, code, f"{subject} {reason}")


def _why_untrusted(file: Path) -> str | None:
    path, current = file.resolve(), Path.cwd()
    if not path.is_relative_to(current):
        return f"is not in the current directory, {current}"
    if path.parent != current and any(home.is_relative_to(current) for home in _home_directories()):
        return f"is not directly in {current}, which is too wide to be one project"
    try:
        public = _find_public_directory(path, current) or _find_public_directory(file, current)
    except OSError as error:
        return f"cannot be inspected: {error.strerror}"
    if public is not None:
        return f"is in {public}, where every user may write, so another user may have changed or added code"
    origin = _download_origin(path)
    return f"was downloaded from {origin}" if origin else None


def _home_directories() -> set[Path]:
    """Return the user's home by the environment and by the user database, without links and without `//`."""
    names = {os.path.expanduser("~")}  # noqa: PTH111  without one it is "~", not an error
    with contextlib.suppress(KeyError):
        names.add(pwd.getpwuid(os.geteuid()).pw_dir)
    return {Path("/", os.path.realpath(name).lstrip("/")) for name in names if name.startswith("/")}


def _find_public_directory(file: Path, current: Path) -> Path | None:
    """Return a directory from the file's up to the current one where every user may write; modules are imported from
    each of them."""
    directories = [path for path in file.absolute().parents if path.is_relative_to(current)]
    return next((path for path in directories if path.stat().st_mode & stat.S_IWOTH), None)


def _download_origin(file: Path) -> str | None:
    if not hasattr(os, "getxattr"):
        return None
    try:
        return os.getxattr(file, _ORIGIN_ATTRIBUTE).decode(errors="replace")
    except OSError:
        return None
