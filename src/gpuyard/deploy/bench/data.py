"""What a bench reads: images of ImageNet's size in the shared storage, made there by the head if nobody has put any."""

import subprocess

from gpuyard.deploy.access.remote import last_line
from gpuyard.deploy.bench.plan import DeploymentBench
from gpuyard.errors import GpuyardError
from gpuyard.interpreter import import_path, module_argv

_SECONDS = 3600.0


def make_data(bench: DeploymentBench, images: int) -> None:
    """So many at least; those of an earlier bench stay."""
    if bench.makes is None:
        return
    place = bench.matrix.sweeps[0].place
    wanted = ("data", "make", bench.makes, "--images", str(images))
    command = place.command(0, [*module_argv("gpuyard"), *wanted], import_path())
    try:
        done = subprocess.run(
            command.argv,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
            stdin=subprocess.DEVNULL,
            timeout=_SECONDS,
        )
        if done.returncode == 0:
            return
        why = last_line(done.stderr).removeprefix("gpuyard: ")
    except subprocess.TimeoutExpired:
        why = f"it took more than {_SECONDS / 3600:.0f} h"
    raise GpuyardError(
        f"{command.node} could not make images in {bench.makes}: {why}; "
        "--data none reads nothing, and --data FOLDER images of yours"
    )
