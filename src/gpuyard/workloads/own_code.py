"""The code that a workload names: which it is, where it lies, and whether it may be run.

A spec is data until something that it names is imported. What is in the user's own project is run as they
asked for it; what came from elsewhere only when they have said so. docs/security.md has the rule in full.
"""

import hashlib
import os
import stat
import sys
from contextvars import ContextVar
from importlib.machinery import PathFinder
from pathlib import Path

from gpuyard.errors import CodeNotAllowed
from gpuyard.specs import Workload
from gpuyard.workloads.disk_images import is_on_disk
from gpuyard.workloads.zoo import MODELS

_DOWNLOADED = "user.xdg.origin.url"  # what browsers, wget and curl --xattr leave on a file
_EVERY_FILE = frozenset([Path("/")])
_allowed: ContextVar[frozenset[Path]] = ContextVar("_allowed", default=frozenset())
"""Specs, and directories of specs, whose code may run wherever they lie."""


def allow_code(where: Path | None = None) -> None:
    """From here on, in this context: of one spec, or of all."""
    _allowed.set(_EVERY_FILE if where is None else _allowed.get() | {where.resolve()})


def code_of(workload: Workload) -> tuple[str, ...]:
    """Each module:factory that it names, but for gpuyard's own models."""
    source = workload.dataset.source if workload.dataset else ""
    named = (workload.model, "" if is_on_disk(source) else source)
    ours = set(MODELS.values())
    return tuple(reference for reference in named if ":" in reference and reference not in ours)


def code_directories(workload: Workload) -> tuple[Path, ...]:
    """Where its modules are looked for after everything that is installed: here, and beside the spec."""
    beside = [workload.file.parent.resolve()] if workload.file else []
    return tuple(dict.fromkeys([Path.cwd(), *beside]))


def find_module(reference: str, directories: tuple[Path, ...]) -> Path | None:
    """The file that a module:factory is in, without importing it; None where there is none."""
    places = [*sys.path, *map(str, directories)]
    name = ""
    for part in reference.partition(":")[0].split("."):
        name = f"{name}.{part}" if name else part
        found = PathFinder.find_spec(name, places)
        if found is None:
            return None
        places = list(found.submodule_search_locations or [])
    file = Path(found.origin) if found and found.origin else None
    return file if file is not None and file.is_file() else None


def code_digest(reference: str, workload: Workload) -> str | None:
    """Of the file that it is in. Two measurements of one spec are the same only if the code behind it is."""
    file = find_module(reference, code_directories(workload))
    return None if file is None else hashlib.sha256(file.read_bytes()).hexdigest()[:16]


def check_allowed(workload: Workload) -> None:
    """Raises CodeNotAllowed where the workload's code is not the user's own and nobody has allowed it."""
    named = code_of(workload)
    if not named or workload.file is None:  # without a file, a program has named it
        return
    real = workload.file.resolve()
    if any(real.is_relative_to(place) for place in _allowed.get()):
        return
    directories = code_directories(workload)
    modules = {reference: find_module(reference, directories) for reference in named}
    not_installed = [file for name, file in modules.items() if file and not find_module(name, ())]
    for file in (workload.file, *not_installed):
        reason = _why_foreign(file)
        if reason is not None:
            code = ", ".join(f"{name} ({file})" if file else name for name, file in modules.items())
            subject = "it" if file == workload.file else str(file)
            raise CodeNotAllowed(workload.file, code, f"{subject} {reason}")


def _why_foreign(file: Path) -> str | None:
    real, here = file.resolve(), Path.cwd()
    if not real.is_relative_to(here):
        return f"is not in the current directory, {here}"
    home = Path(os.path.expanduser("~"))  # noqa: PTH111  without one it is "~", not an error
    if here in (Path("/"), home) and real.parent != here:
        return f"is not directly in {here}, which is too wide to be one project"
    try:
        planted = _planted(real, here)
    except OSError as error:
        return f"can't be looked at: {error.strerror}"
    if planted is not None:
        whose = "belongs to" if planted == real else f"is in {planted}, which belongs to"
        where = f"in a directory that everybody may write to, {planted.parent}"
        return f"{whose} somebody else, {where}"
    origin = _downloaded_from(real)
    return f"was downloaded from {origin}" if origin else None


def _planted(file: Path, here: Path) -> Path | None:
    """The file, or a directory on the way to it, that somebody else can have put where everybody may write."""
    for entry in (file, *file.parents):
        if entry == here:
            break
        open_to_all = entry.parent.stat().st_mode & stat.S_IWOTH
        if open_to_all and entry.stat().st_uid not in (0, os.geteuid()):
            return entry
    return None


def _downloaded_from(file: Path) -> str | None:
    if not hasattr(os, "getxattr"):
        return None
    try:
        return os.getxattr(file, _DOWNLOADED).decode(errors="replace")
    except OSError:
        return None
