"""A disk of a few megabytes for tests that fill it."""

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest


@contextmanager
def small_disk(path: Path, *, megabytes: int) -> Iterator[Path]:
    if os.geteuid() != 0:
        pytest.skip("mounting a small disk needs root")
    path.mkdir()
    options = f"size={megabytes}m,mode=755"
    subprocess.run(("mount", "-t", "tmpfs", "-o", options, "none", str(path)), check=True)
    try:
        yield path
    finally:
        subprocess.run(("umount", "--lazy", str(path)), check=True)


def fill(path: Path) -> None:
    """Write until the disk is full."""
    argv = ("dd", "if=/dev/zero", f"of={path}", "bs=4k")
    assert b"No space left" in subprocess.run(argv, capture_output=True, check=False).stderr
