"""On what and with what a bench was run, as it is recorded beside its results."""

import platform
from dataclasses import asdict

from gpuyard import __version__
from gpuyard.measure.host import Host, torch_version
from gpuyard.measure.measurement import BenchHost


def bench_host(host: Host) -> BenchHost:
    """The machine, and the versions of today."""
    return BenchHost(
        gpuyard=__version__,
        torch=torch_version(),
        python=platform.python_version(),
        **asdict(host),
    )
