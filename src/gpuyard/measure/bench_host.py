"""On what and with what a bench was run, as it is recorded beside its results."""

import hashlib
import json
import platform
import uuid
from collections.abc import Mapping
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any

from gpuyard import __version__
from gpuyard.measure.host import Host, torch_version
from gpuyard.measure.training.measurement import BenchHost, BenchRecord


def bench_host(host: Host) -> BenchHost:
    """The machine, and the versions of today."""
    return BenchHost(
        gpuyard=__version__,
        torch=torch_version(),
        python=platform.python_version(),
        **asdict(host),
    )


def new_record(asked: Mapping[str, Any], host: Host) -> BenchRecord:
    """For what was just measured; the key is of what was asked for, on this machine."""
    document = json.dumps({**asked, "host": host.fingerprint()}, sort_keys=True, default=str)
    return BenchRecord(
        id=uuid.uuid4().hex[:12],
        key=hashlib.sha256(document.encode()).hexdigest(),
        created_at=datetime.now(UTC).isoformat(timespec="milliseconds"),
        host=bench_host(host),
    )
