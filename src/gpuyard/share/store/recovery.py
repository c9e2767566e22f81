"""A damaged store is put aside and made anew, with every lease that is still held: the locks say which."""

import json
import os
import time
from dataclasses import asdict
from pathlib import Path

from gpuyard.share.store.broker import DATABASE, LOCKS, Broker
from gpuyard.share.store.database import check
from gpuyard.share.store.lease import Lease
from gpuyard.share.store.locks import Locks


def recover(directory: Path) -> tuple[Path | None, list[Lease]]:
    """Where the damaged store is now (None: there was nothing wrong), and the leases that were taken over."""
    store = directory / DATABASE
    if store.exists() and check(store) is None:
        Broker(directory).close()  # a version that is too new is said here
        return None, []
    aside = directory / f"{DATABASE}.damaged-{time.strftime('%Y%m%d-%H%M%S')}"
    for suffix in ("-shm", "-wal", ""):
        part = directory / f"{DATABASE}{suffix}"
        if part.exists():
            part.rename(aside.with_name(aside.name + suffix))
    broker = Broker(directory)
    if os.geteuid() == 0:
        store.chmod(0o644)
    running = [lease for text in Locks(directory / LOCKS).held().values() if (lease := _read(text))]
    with broker.database.transaction() as connection:
        for lease in running:
            row = {
                **asdict(lease),
                "wanted": json.dumps(lease.wanted),
                "gpus": json.dumps(lease.gpus),
            }
            names = ", ".join(f'"{name}"' for name in row)
            values = ", ".join("?" * len(row))
            connection.execute(
                f"INSERT INTO leases ({names}) VALUES ({values})",  # noqa: S608 - our own columns
                tuple(row.values()),
            )
            connection.executemany(
                "INSERT INTO holds (lease, gpu, parts) VALUES (?, ?, ?)",
                [(lease.number, gpu, lease.parts) for gpu in lease.gpus],
            )
    broker.close()
    return aside, running


def _read(text: str) -> Lease | None:
    """A lock of somebody who still waits has nothing in it."""
    try:
        return Lease.from_document(json.loads(text))
    except (ValueError, TypeError, KeyError):
        return None
