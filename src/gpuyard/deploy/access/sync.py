"""A folder of this machine, copied to the shared storage: by rsync where both sides have it, else by tar over ssh.

Both send what is new or has changed (size, or time of change) and nothing else, and delete nothing unless asked to.
"""

import fnmatch
import os
import re
import shlex
import shutil
import stat
import subprocess
import tarfile
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Literal

from gpuyard.deploy.access.remote import last_line, run_there, ssh_argv
from gpuyard.deploy.deployment import Opened
from gpuyard.deploy.state import Host
from gpuyard.errors import GpuyardError, UserMistake

Tell = Callable[[str], None]
LEFT_OUT = (".git", ".venv")
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,99}")
_PATTERN = re.compile(r"[^/\x00-\x1f]{1,100}")
_SENT = "<c"  # what rsync says of what it sends or makes


@dataclass(frozen=True)
class Copy:
    """What would be copied, from where to where."""

    folder: Path
    destination: str
    head: Host
    left_out: tuple[str, ...]
    delete: bool

    def leaves_out(self, path: str) -> bool:
        return any(
            fnmatch.fnmatchcase(part, pattern)
            for part in path.split("/")
            for pattern in self.left_out
        )


@dataclass(frozen=True)
class Copied:
    """What was, or would be; paths are below the folder."""

    copy: Copy
    by: Literal["rsync", "tar"]
    sent: tuple[tuple[str, int], ...]
    """Path and bytes of each file."""
    deleted: tuple[str, ...]

    @property
    def sent_bytes(self) -> int:
        return sum(size for _, size in self.sent)


def plan_copy(
    opened: Opened, head: Host, folder: Path, to: str | None, more: Sequence[str], *, delete: bool
) -> Copy:
    """Check everything that can be before a byte moves."""
    if not folder.is_dir():
        raise UserMistake(f"{folder}: there is no such folder")
    if "shared-storage" not in opened.deployment.head:
        raise UserMistake(
            f"{opened.deployment.name} has no shared storage: add shared-storage to 'head' and 'workers'"
        )
    name = to or folder.resolve().name
    if not _NAME.fullmatch(name):
        raise UserMistake(
            f"{name!r} can't be the folder's name there; give one with --to, of letters, digits, '.', '_' and '-'"
        )
    for pattern in more:
        if not _PATTERN.fullmatch(pattern):
            raise UserMistake(
                f"expected a name or a pattern like '*.pt' without '/', got {pattern!r}"
            )
    shared = opened.deployment.shared
    return Copy(folder, f"{shared}/{name}", head, (*LEFT_OUT, *more), delete)


def run_copy(opened: Opened, copy: Copy, tell: Tell, *, dry_run: bool) -> Copied:
    """Copy it; a dry run says what would be copied."""
    tell(f"Reaching {copy.head.name}")
    shared = opened.deployment.shared
    there = f"test -d {shared}/. || {{ echo {shared} is not there >&2; exit 1; }}"
    make = "" if dry_run else f"mkdir -p {copy.destination} && "
    if shutil.which("rsync") is None:
        return _by_tar(opened, copy, f"{there}; {make}", tell, dry_run=dry_run)
    if run_there(opened, copy.head, f"{there}; {make}{{ command -v rsync || true; }}").strip():
        return _by_rsync(opened, copy, tell, dry_run=dry_run)
    return _by_tar(opened, copy, "", tell, dry_run=dry_run)


def _by_rsync(opened: Opened, copy: Copy, tell: Tell, *, dry_run: bool) -> Copied:
    tell(f"Copying {copy.folder} by rsync")
    *ssh, _, host = ssh_argv(opened, copy.head)
    argv = ["rsync", "-a", "--no-owner", "--no-group", "--out-format=%i %l %n"]
    argv += [f"--exclude={pattern}" for pattern in copy.left_out]
    argv += ["--delete"] if copy.delete else []
    argv += ["--dry-run"] if dry_run else []
    done = subprocess.run(
        [*argv, "--", f"{copy.folder}/", f"{host}:{copy.destination}/"],
        env={**os.environ, "RSYNC_RSH": shlex.join(ssh)},
        capture_output=True,
        text=True,
        errors="replace",
        check=False,
        stdin=subprocess.DEVNULL,
    )
    if done.returncode != 0:
        raise GpuyardError(_failed(copy, done.stderr))
    sent, deleted = rsync_said(done.stdout)
    return Copied(copy, "rsync", sent, deleted)


def rsync_said(text: str) -> tuple[tuple[tuple[str, int], ...], tuple[str, ...]]:
    """Files that were sent, with their bytes, and what was deleted, from lines of `%i %l %n`."""
    sent, deleted = [], []
    for line in text.splitlines():
        what, _, rest = line.partition(" ")
        size, _, name = rest.strip().partition(" ")
        if what == "*deleting":
            deleted.append(name.rstrip("/"))
        elif len(what) > 1 and what[0] in _SENT and what[1] in "fL":
            sent.append((name, int(size) if what[1] == "f" else 0))
    return tuple(sent), tuple(deleted)


@dataclass(frozen=True)
class _Entry:
    """What tells whether a file has changed."""

    kind: str
    size: int
    second: int
    target: str = ""

    @property
    def identity(self) -> tuple[str, int, int, str]:
        if self.kind == "l":
            return ("l", 0, 0, self.target)
        return (
            (self.kind, self.size, self.second, "") if self.kind == "f" else (self.kind, 0, 0, "")
        )


def _by_tar(opened: Opened, copy: Copy, first: str, tell: Tell, *, dry_run: bool) -> Copied:
    """`first` is what the head's shell does before it is asked what is there: one connection less."""
    here, there = dict(_here(copy)), _there(opened, copy, first)
    changed = [p for p, e in here.items() if p not in there or there[p].identity != e.identity]
    gone = [p for p in there if p not in here and not copy.leaves_out(p)] if copy.delete else []
    if not dry_run:
        if changed:
            _send(opened, copy, changed, tell)
        if gone:
            _delete(opened, copy, {path: there[path] for path in gone})
    sent = tuple((path, here[path].size) for path in changed if here[path].kind != "d")
    return Copied(copy, "tar", sent, tuple(gone))


def _here(copy: Copy) -> Iterator[tuple[str, _Entry]]:
    def unreadable(error: OSError) -> None:
        raise GpuyardError(f"{error.filename} can't be read: {error.strerror}") from error

    for directory, folders, names in os.walk(copy.folder, onerror=unreadable):
        below = os.path.relpath(directory, copy.folder)
        prefix = "" if below == "." else f"{below}/"
        folders[:] = sorted(name for name in folders if not copy.leaves_out(name))
        for name in (*folders, *sorted(names)):
            if copy.leaves_out(name):
                continue
            status = (Path(directory) / name).lstat()
            if stat.S_ISLNK(status.st_mode):
                yield prefix + name, _Entry("l", 0, 0, str((Path(directory) / name).readlink()))
            elif stat.S_ISDIR(status.st_mode):
                yield prefix + name, _Entry("d", 0, 0)
            elif stat.S_ISREG(status.st_mode):  # sockets, pipes and devices stay here
                yield prefix + name, _Entry("f", status.st_size, int(status.st_mtime))


def _there(opened: Opened, copy: Copy, first: str) -> dict[str, _Entry]:
    line = (
        f"{first}test ! -d {copy.destination} || "
        f"find {copy.destination} -mindepth 1 -printf '%y %s %T@ %P\\0%l\\0'"
    )
    fields = run_there(opened, copy.head, line).split("\0")
    found = {}
    for told, target in zip(fields[::2], fields[1::2], strict=False):
        kind, size, when, path = told.split(" ", 3)
        found[path] = _Entry(kind, int(size), int(float(when)), target)
    return found


def _send(opened: Opened, copy: Copy, paths: Sequence[str], tell: Tell) -> None:
    """As one stream, which the head unpacks; its owner is who logs in there."""
    unpack = f"tar --extract --file=- --no-same-owner --directory={copy.destination}"
    with tempfile.TemporaryFile() as said:
        process = subprocess.Popen(
            (*ssh_argv(opened, copy.head), unpack),
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=said,
        )
        broken = None
        try:
            _pack(copy, paths, process.stdin, tell)
        except OSError as error:  # the other side's words say more, where it has ended
            broken = error
        status = process.wait()
        said.seek(0)
        words = said.read().decode(errors="replace")
    if status != 0:
        raise GpuyardError(_failed(copy, words))
    if broken is not None:
        raise GpuyardError(_failed(copy, str(broken))) from broken


def _pack(copy: Copy, paths: Sequence[str], stream: IO[bytes] | None, tell: Tell) -> None:
    if stream is None:
        raise TypeError("expected a pipe to write into")
    with stream, tarfile.open(fileobj=stream, mode="w|") as packed:
        for path in paths:
            tell(f"Copying {path}")
            packed.add(copy.folder / path, path, recursive=False)


def _delete(opened: Opened, copy: Copy, gone: Mapping[str, _Entry]) -> None:
    """Files first; then folders from the deepest up, unless something is left out of the copy in them."""
    files = [path for path, entry in gone.items() if entry.kind != "d"]
    folders = sorted((p for p, e in gone.items() if e.kind == "d"), key=lambda p: -p.count("/"))
    for what, paths in (
        ("rm -f", files),
        ("rmdir --ignore-fail-on-non-empty", folders),
    ):
        if paths:
            line = f"cd {copy.destination} && xargs -0 {what} --"
            run_there(opened, copy.head, line, "".join(f"{path}\0" for path in paths))


def _failed(copy: Copy, said: str) -> str:
    where = f"{copy.head.name}:{copy.destination}"
    return f"{copy.folder} could not be copied to {where}: {last_line(said)}; what arrived is there, run it again"
