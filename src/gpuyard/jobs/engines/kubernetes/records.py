"""What was submitted from here: the cluster forgets a job when it is deleted, and a handle must still mean something.

One small file a job, which only its owner reads: a job's variables may be nobody else's business.
"""

import contextlib
import hashlib
import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from gpuyard.files import home, make_parent, write_text
from gpuyard.jobs.job import Handle, Job


@dataclass(frozen=True)
class KubernetesRecord:
    """One job, and whether it was cancelled from here."""

    handle: Handle
    job: dict[str, Any]
    cancelled: bool = False

    def write(self) -> None:
        """Whole or not at all."""
        document = {"handle": str(self.handle), "job": self.job, "cancelled": self.cancelled}
        write_text(make_parent(_path(self.handle)), json.dumps(document) + "\n", mode=0o600)


def record_of(handle: Handle) -> KubernetesRecord | None:
    """None: it was not submitted from here."""
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
        document = json.loads(_path(handle).read_text(encoding="utf-8"))
        if document["handle"] == str(handle):
            job = Job.from_document(document["job"])
            return KubernetesRecord(handle, job.document(), bool(document["cancelled"]))
    return None


def forget(handle: Handle) -> None:
    """Of what was refused."""
    _path(handle).unlink(missing_ok=True)


def mark_cancelled(handle: Handle) -> None:
    """Of what was submitted elsewhere, nothing is known here."""
    record = record_of(handle)
    if record is not None:
        replace(record, cancelled=True).write()


def _path(handle: Handle) -> Path:
    digest = hashlib.sha256(str(handle).encode()).hexdigest()[:40]
    return home() / "kubernetes" / f"{digest}.json"
