"""Local records of submitted jobs: the cluster forgets deleted jobs, but their handles must stay valid.

Each job has one small file that only its owner can read, because its variables may be private.
"""

import contextlib
import hashlib
import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from gpuyard.errors import GpuyardError
from gpuyard.files import create_parent, home, write_text
from gpuyard.jobs.job import Handle, Job


@dataclass(frozen=True)
class KubernetesRecord:
    """A submitted job, and whether it was canceled from here."""

    handle: Handle
    job: dict[str, Any]
    canceled: bool = False

    def write(self) -> None:
        """Write the record atomically."""
        document = {"handle": str(self.handle), "job": self.job, "cancelled": self.canceled}
        write_text(
            create_parent(_record_path(self.handle)), json.dumps(document) + "\n", mode=0o600
        )


def read_record(handle: Handle) -> KubernetesRecord | None:
    """Return the job's record, or None if it was not submitted from here."""
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
        document = json.loads(_record_path(handle).read_text(encoding="utf-8"))
        if document["handle"] == str(handle):
            job = Job.from_document(document["job"])
            return KubernetesRecord(handle, job.document(), bool(document["cancelled"]))
    return None


def delete_record(handle: Handle) -> None:
    """Delete the record of a job that was rejected, or that ended long ago."""
    _record_path(handle).unlink(missing_ok=True)


def list_old(before: float) -> list[Handle]:
    """List the jobs that were submitted and, if at all, canceled before a time."""
    handles = []
    for path in (home() / "kubernetes").glob("*.json"):
        with contextlib.suppress(GpuyardError, OSError, ValueError, KeyError, TypeError):
            if path.stat().st_mtime < before:
                handles.append(Handle.parse(json.loads(path.read_text("utf-8"))["handle"]))
    return handles


def mark_cancelled(handle: Handle) -> None:
    """Mark the job as canceled, if it was submitted from here."""
    record = read_record(handle)
    if record is not None:
        replace(record, canceled=True).write()


def _record_path(handle: Handle) -> Path:
    digest = hashlib.sha256(str(handle).encode()).hexdigest()[:40]
    return home() / "kubernetes" / f"{digest}.json"
