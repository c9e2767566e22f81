"""Copy files from the shared storage to this machine, with tar over ssh.

Only files that are new there or differ in size or modification time are sent. Nothing is deleted here, and a file that
was changed here later stays. A file appears when it is complete, so a copy that was interrupted can be repeated.
"""

import os
import shlex
import shutil
import subprocess
import tarfile
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from typing import IO, cast

from gpuyard.deploy import StatusCallback
from gpuyard.deploy.access.listing import (
    DEFAULT_EXCLUDES,
    Entry,
    is_excluded,
    list_command,
    parse_listing,
    read_entry,
)
from gpuyard.deploy.access.remote import (
    HasState,
    as_root_if_possible,
    last_line,
    run_remote,
    ssh_argv,
)
from gpuyard.deploy.access.sync import check_patterns, require_shared_storage
from gpuyard.deploy.deployment import LoadedDeployment
from gpuyard.deploy.state import Host
from gpuyard.errors import GpuyardError, UserMistake
from gpuyard.printable import make_printable
from gpuyard.temporary import remove_leftovers, temporary_file
from gpuyard.units import format_bytes

_CHUNK_BYTES = 1 << 20
_FILES_CHANGED = 1  # tar's exit status if a job wrote to a file meanwhile


@dataclass(frozen=True)
class FetchPlan:
    """A file or folder of the shared storage, and where its copy goes."""

    source: str
    """The absolute path on the head."""
    destination: Path
    head: Host
    excluded_patterns: tuple[str, ...]
    only: frozenset[str] | None = None
    """The paths below the source to copy; None stands for all."""


@dataclass(frozen=True)
class FetchResult:
    """The files that were copied, or would be; paths are relative to the destination."""

    plan: FetchPlan
    copied: tuple[tuple[str, int], ...]
    """Path and size in bytes of each file."""
    kept: tuple[str, ...]
    """Files that differ, and were changed here later than there."""

    @property
    def copied_bytes(self) -> int:
        return sum(size for _, size in self.copied)


def plan_fetch(
    loaded: LoadedDeployment,
    head: Host,
    name: str | None = None,
    destination: Path | None = None,
    excludes: Sequence[str] = (),
) -> FetchPlan:
    """Check everything that can be checked before any data moves.

    The name is a path in the shared storage; None stands for all of it.
    """
    require_shared_storage(loaded)
    check_patterns(excludes)
    shared = PurePosixPath(loaded.deployment.shared)
    source = shared / (name or ".")
    if not source.is_relative_to(shared) or ".." in source.parts:
        raise UserMistake(f"expected a path in the shared storage {shared}, got {name!r}")
    default = source.name if source != shared else f"{loaded.deployment.name}-shared"
    path = destination or Path(default)
    if not path.absolute().parent.is_dir():
        raise UserMistake(
            f"{path.parent}: folder not found; create it, or choose another with --to"
        )
    return FetchPlan(str(source), path, head, (*DEFAULT_EXCLUDES, *excludes))


def run_fetch(
    loaded: HasState, plan: FetchPlan, report: StatusCallback, *, dry_run: bool = False
) -> FetchResult:
    """Copy the file or folder to this machine; a dry run only returns what would be copied."""
    report(f"Connecting to {plan.head.name}")
    remote = list_source(loaded, plan)
    if remote.get(".", Entry("d", 0, 0)).kind != "d" and plan.destination.is_dir():
        name = PurePosixPath(plan.source).name
        plan = replace(plan, destination=plan.destination / name)
    changed: dict[str, Entry] = {}
    kept = []
    for path, entry in remote.items():
        local = read_entry(plan.destination / path)
        if local is not None and (local.kind == "d") != (entry.kind == "d"):
            here, there = ("folder", "file") if local.kind == "d" else ("file", "folder")
            raise GpuyardError(
                f"{plan.destination / path} is a {here} here and a {there} on {plan.head.name}; move it away, or "
                "choose another folder with --to"
            )
        if local is None or local.identity != entry.identity:
            if local is not None and local.modified_seconds > entry.modified_seconds:
                kept.append(path)
            else:
                changed[path] = entry
    copied = tuple((path, entry.size) for path, entry in changed.items() if entry.kind != "d")
    result = FetchResult(plan, copied, tuple(kept))
    if changed and not dry_run:
        _check_space(plan, result.copied_bytes)
        _receive(loaded, plan, changed, report)
    return result


def list_source(loaded: HasState, plan: FetchPlan) -> dict[str, Entry]:
    """Return what there is to copy. The path of a single file, and of the folder itself, is "."."""
    source = shlex.quote(plan.source)
    command = (
        f"if [ -d {source} ]; then printf 'd 0 0 .\\0\\0'; {list_command(plan.source + '/.')}; "
        f"elif [ -e {source} ]; then find {source} -printf '%y %s %T@ .\\0%l\\0'; "
        f"else echo {source} not found >&2; exit 1; fi"
    )
    entries = parse_listing(run_remote(loaded, plan.head, as_root_if_possible(command)))
    return {
        path: entry
        for path, entry in entries.items()
        if entry.kind in ("f", "d", "l")
        and (plan.only is None or path in plan.only)
        and (path == "." or not is_excluded(path, plan.excluded_patterns))
    }


def _check_space(plan: FetchPlan, needed_bytes: int) -> None:
    free_bytes = shutil.disk_usage(plan.destination.absolute().parent).free
    if needed_bytes > free_bytes:
        raise GpuyardError(
            f"{plan.source} needs {format_bytes(needed_bytes)}, and the disk of {plan.destination} has "
            f"{format_bytes(free_bytes)} free; choose another with --to, or leave files out with --exclude"
        )


def _receive(
    loaded: HasState,
    plan: FetchPlan,
    entries: Mapping[str, Entry],
    report: StatusCallback,
) -> None:
    """Let the head pack the files as one stream, and unpack it here."""
    tar = "tar --create --file=- --hard-dereference --no-recursion"
    single = entries.get(".", Entry("d", 0, 0)).kind != "d"
    if single:
        path = PurePosixPath(plan.source)
        pack = f"{tar} --directory={shlex.quote(str(path.parent))} -- ./{shlex.quote(path.name)}"
    else:
        plan.destination.mkdir(exist_ok=True)
        names = "--null --verbatim-files-from --files-from=-"
        pack = f"cd {shlex.quote(plan.source)} && {tar} {names}"
    remove_leftovers(*{(plan.destination / path).parent for path in entries})
    with tempfile.TemporaryFile() as stdin, tempfile.TemporaryFile() as stderr:
        stdin.write(b"".join(os.fsencode(f"./{path}") + b"\0" for path in entries if path != "."))
        stdin.seek(0)
        process = subprocess.Popen(
            (*ssh_argv(loaded, plan.head), as_root_if_possible(pack)),
            stdin=stdin,
            stdout=subprocess.PIPE,
            stderr=stderr,
        )
        local_error = None
        try:
            with cast("IO[bytes]", process.stdout) as stream:
                _unpack(plan, stream, report, single=single, count=len(entries))
        except (tarfile.TarError, OSError) as error:
            local_error = error
        finally:
            status = process.wait()
        stderr.seek(0)
        output = stderr.read().decode(errors="replace")
    # If reading here stopped early, the remote side only reports a broken pipe.
    if isinstance(local_error, _LocalError | OSError):
        raise GpuyardError(_describe_failure(plan, str(local_error))) from local_error
    if status not in (0, _FILES_CHANGED) or local_error is not None:
        raise GpuyardError(_describe_failure(plan, output or str(local_error))) from local_error


class _LocalError(tarfile.TarError):
    """A file cannot be written here."""


def _unpack(
    plan: FetchPlan, stream: IO[bytes], report: StatusCallback, *, single: bool, count: int
) -> None:
    with tarfile.open(fileobj=stream, mode="r|", errorlevel=1) as archive:
        for number, member in enumerate(archive, 1):
            report(f"Copying {number} of {count}: {make_printable(member.name)}")
            path = plan.destination if single else _locate(plan.destination, member.name)
            if member.isdir():
                path.mkdir(exist_ok=True)
            elif member.issym():
                path.unlink(missing_ok=True)
                path.symlink_to(member.linkname)
            elif (content := archive.extractfile(member)) is not None:
                _write_file(path, content, member)


def _locate(folder: Path, name: str) -> Path:
    """Return where a file belongs. Raises rather than following a link, which others may have put there."""
    parts = [part for part in PurePosixPath(name).parts if part != "."]
    path = folder
    for part in parts[:-1]:
        path /= part
        if path.is_symlink():
            raise _LocalError(f"{path} is a symbolic link; move it away")
        path.mkdir(exist_ok=True)
    if not parts or ".." in parts or PurePosixPath(name).is_absolute():
        raise _LocalError(f"{name!r} is not a path in the folder")
    return path / parts[-1]


def _write_file(path: Path, content: IO[bytes], member: tarfile.TarInfo) -> None:
    with temporary_file(path.parent, 0o600) as (part, file):
        shutil.copyfileobj(content, file, _CHUNK_BYTES)
        file.flush()
        os.fchmod(file.fileno(), member.mode & 0o777)
        os.utime(file.fileno(), (member.mtime, member.mtime))
        part.replace(path)


def _describe_failure(plan: FetchPlan, output: str) -> str:
    where = f"{plan.head.name}:{plan.source}"
    return (
        f"cannot copy {where} to {plan.destination}: {last_line(output)}; the files copied so far are there, run it "
        "again"
    )
