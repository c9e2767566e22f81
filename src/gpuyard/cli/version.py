"""`gpuyard version`: print the version, like `gpuyard --version`."""

import sys

from gpuyard.version import __version__


def version() -> None:
    """Print the version.

    Example: gpuyard version
    """
    sys.stdout.write(f"gpuyard {__version__}\n")
