"""Copy a local folder to the shared storage: with rsync if both sides have it, otherwise with tar over ssh.

Both send only files that are new or differ in size or modification time, and delete nothing unless asked to.
"""

import os
import re
import shlex
import shutil
import subprocess
import tarfile
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Literal

from gpuyard.deploy import StatusCallback
from gpuyard.deploy.access.listing import (
    DEFAULT_EXCLUDES,
    Entry,
    is_excluded,
    list_command,
    list_local,
    parse_listing,
)
from gpuyard.deploy.access.remote import as_user, last_line, run_remote, ssh_argv
from gpuyard.deploy.deployment import LoadedDeployment
from gpuyard.deploy.state import Host
from gpuyard.errors import GpuyardError, UserMistake

_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,99}")
_PATTERN = re.compile(r"[^/\x00-\x1f]{1,100}")
_SENT = "<c"  # rsync's codes for sent and created items


@dataclass(frozen=True)
class CopyPlan:
    """A folder to copy, and its destination."""

    folder: Path
    destination: str
    head: Host
    excluded_patterns: tuple[str, ...]
    delete: bool
    owner: str | None = None
    """The person whom the files belong to; None for the user who logs in."""


@dataclass(frozen=True)
class CopyResult:
    """The files that were copied, or would be; paths are relative to the folder."""

    plan: CopyPlan
    method: Literal["rsync", "tar"]
    sent: tuple[tuple[str, int], ...]
    """Path and size in bytes of each file."""
    deleted: tuple[str, ...]

    @property
    def sent_bytes(self) -> int:
        return sum(size for _, size in self.sent)


def plan_copy(
    loaded: LoadedDeployment,
    head: Host,
    folder: Path,
    destination_name: str | None,
    excludes: Sequence[str],
    *,
    delete: bool,
    owner: str | None = None,
) -> CopyPlan:
    """Check everything that can be checked before any data moves."""
    if not folder.is_dir():
        raise UserMistake(f"{folder}: folder not found")
    require_shared_storage(loaded)
    name = destination_name or folder.resolve().name
    if not _NAME.fullmatch(name):
        raise UserMistake(
            f"{name!r} cannot be the destination's name; choose one with --to, of letters, digits, '.', '_', and '-'"
        )
    check_patterns(excludes)
    shared = loaded.deployment.shared
    patterns = (*DEFAULT_EXCLUDES, *excludes)
    return CopyPlan(folder, f"{shared}/{name}", head, patterns, delete, owner)


def require_shared_storage(loaded: LoadedDeployment) -> None:
    """Raise if the deployment has no shared storage."""
    if "shared-storage" not in loaded.deployment.head:
        raise UserMistake(
            f"{loaded.deployment.name} has no shared storage; add shared-storage to 'head' and 'workers'"
        )


def check_patterns(patterns: Sequence[str]) -> None:
    """Raise if one of the patterns is not the pattern of a file name."""
    for pattern in patterns:
        if not _PATTERN.fullmatch(pattern):
            raise UserMistake(
                f"expected a name or a pattern like '*.pt' without '/', got {pattern!r}"
            )


def run_copy(
    loaded: LoadedDeployment, plan: CopyPlan, report: StatusCallback, *, dry_run: bool
) -> CopyResult:
    """Copy the folder; a dry run only returns what would be copied."""
    report(f"Connecting to {plan.head.name}")
    shared = loaded.deployment.shared
    prepare = f"test -d {shared}/. || {{ echo {shared} not found >&2; exit 1; }}; "
    if not dry_run:
        prepare += f"mkdir -p {plan.destination} && "
    if shutil.which("rsync") is None:
        return _copy_with_tar(loaded, plan, prepare, report, dry_run=dry_run)
    probe = f"{{ id -u; {as_user(plan.owner, prepare + '{ command -v rsync || true; }')}; }}"
    user_id, *rsync = run_remote(loaded, plan.head, probe).split()
    if rsync:
        is_root = user_id == "0"
        return _copy_with_rsync(loaded, plan, report, is_root=is_root, dry_run=dry_run)
    return _copy_with_tar(loaded, plan, "", report, dry_run=dry_run)


def _copy_with_rsync(
    loaded: LoadedDeployment,
    plan: CopyPlan,
    report: StatusCallback,
    *,
    is_root: bool,
    dry_run: bool,
) -> CopyResult:
    report(f"Copying {plan.folder} with rsync")
    *ssh, _, host = ssh_argv(loaded, plan.head)
    argv = ["rsync", "-a", "--no-owner", "--no-group", "--no-D", "--out-format=%i %l %n"]
    argv += [f"--exclude={pattern}" for pattern in plan.excluded_patterns]
    argv += ["--delete"] if plan.delete else []
    argv += ["--dry-run"] if dry_run else []
    if plan.owner is not None:
        become = "runuser -u" if is_root else "sudo -n -u"
        argv += [f"--rsync-path=cd / && {become} {plan.owner} -- rsync"]
    done = subprocess.run(
        [*argv, "--", f"{plan.folder}/", f"{host}:{plan.destination}/"],
        env={**os.environ, "RSYNC_RSH": shlex.join(ssh)},
        capture_output=True,
        text=True,
        errors="replace",
        check=False,
        stdin=subprocess.DEVNULL,
    )
    if done.returncode != 0:
        raise GpuyardError(_describe_failure(plan, done.stderr))
    sent, deleted = parse_rsync_output(done.stdout)
    return CopyResult(plan, "rsync", sent, deleted)


def parse_rsync_output(text: str) -> tuple[tuple[tuple[str, int], ...], tuple[str, ...]]:
    """Return the files that were sent, with their sizes, and what was deleted, from lines of `%i %l %n`."""
    sent, deleted = [], []
    for line in text.splitlines():
        change, _, rest = line.partition(" ")
        size, _, name = rest.strip().partition(" ")
        if change == "*deleting":
            deleted.append(name.rstrip("/"))
        elif len(change) > 1 and change[0] in _SENT and change[1] in "fL":
            sent.append((name, int(size) if change[1] == "f" else 0))
    return tuple(sent), tuple(deleted)


def _copy_with_tar(
    loaded: LoadedDeployment,
    plan: CopyPlan,
    prepare: str,
    report: StatusCallback,
    *,
    dry_run: bool,
) -> CopyResult:
    """Copy the folder; `prepare` runs in the same shell that lists the destination, which saves a connection."""
    local = dict(list_local(plan.folder, plan.excluded_patterns))
    listing = f"{prepare}test ! -d {plan.destination} || {list_command(plan.destination)}"
    remote = parse_listing(run_remote(loaded, plan.head, as_user(plan.owner, listing)))
    changed = [p for p, e in local.items() if p not in remote or remote[p].identity != e.identity]
    excluded = plan.excluded_patterns
    extra = [p for p in remote if p not in local and not is_excluded(p, excluded)]
    deleted = extra if plan.delete else []
    if not dry_run:
        if changed:
            _send(loaded, plan, changed, report)
        if deleted:
            _delete(loaded, plan, {path: remote[path] for path in deleted})
    sent = tuple((path, local[path].size) for path in changed if local[path].kind != "d")
    return CopyResult(plan, "tar", sent, tuple(deleted))


def _send(
    loaded: LoadedDeployment, plan: CopyPlan, paths: Sequence[str], report: StatusCallback
) -> None:
    """Send the files as one stream, which the head unpacks as their owner."""
    unpack = f"tar --extract --file=- --no-same-owner --directory={plan.destination}"
    with tempfile.TemporaryFile() as stderr:
        process = subprocess.Popen(
            (*ssh_argv(loaded, plan.head), as_user(plan.owner, unpack)),
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=stderr,
        )
        pack_error = None
        try:
            _pack(plan, paths, process.stdin, report)
        except OSError as error:  # if the remote side failed, its own message says more
            pack_error = error
        status = process.wait()
        stderr.seek(0)
        output = stderr.read().decode(errors="replace")
    if status != 0:
        raise GpuyardError(_describe_failure(plan, output))
    if pack_error is not None:
        raise GpuyardError(_describe_failure(plan, str(pack_error))) from pack_error


def _pack(
    plan: CopyPlan, paths: Sequence[str], stream: IO[bytes] | None, report: StatusCallback
) -> None:
    if stream is None:
        raise TypeError("expected a pipe to write to")
    with stream, tarfile.open(fileobj=stream, mode="w|") as archive:
        for path in paths:
            report(f"Copying {path}")
            archive.add(plan.folder / path, path, recursive=False)


def _delete(loaded: LoadedDeployment, plan: CopyPlan, entries: Mapping[str, Entry]) -> None:
    """Delete files first, then empty folders from the deepest up; a folder with excluded files stays."""
    files = [path for path, entry in entries.items() if entry.kind != "d"]
    folders = sorted((p for p, e in entries.items() if e.kind == "d"), key=lambda p: -p.count("/"))
    for program, paths in (
        ("rm -f", files),
        ("rmdir --ignore-fail-on-non-empty", folders),
    ):
        if paths:
            command = f"cd {plan.destination} && xargs -0 {program} --"
            names = "".join(f"{path}\0" for path in paths)
            run_remote(loaded, plan.head, as_user(plan.owner, command), names)


def _describe_failure(plan: CopyPlan, output: str) -> str:
    where = f"{plan.head.name}:{plan.destination}"
    return f"cannot copy {plan.folder} to {where}: {last_line(output)}; the files sent so far are there, run it again"
