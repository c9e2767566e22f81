"""Set up a share: its directory, its GPUs with their topology, and an empty store."""

import contextlib
import os
import stat
import sys
from dataclasses import replace
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING

from gpuyard.errors import GpuyardError, MissingRequirement, UnknownName, UserMistake
from gpuyard.share.cgroup import find_usable_kind
from gpuyard.share.clock import Clock
from gpuyard.share.config import (
    MachineIdentity,
    ShareConfig,
    SharedGpu,
    config_file,
    lock_config,
    read_config,
    setup_directory,
)
from gpuyard.share.devices import device_file, fake_device_number
from gpuyard.share.gpu_choice import MAX_TABULATED_GPUS, gpu_mask
from gpuyard.share.gpus import discover_gpus
from gpuyard.share.locks import LOCKS
from gpuyard.share.store import DATABASE, Store, close_to_others

if TYPE_CHECKING:
    from gpuyard.hardware import MachineGraph

_FAKE_DEVICES = "devices"
_FAKE_MEMORY_BYTES = 24_000_000_000


def set_up(
    directory: Path,
    *,
    fake_gpus: int | None = None,
    topology: str | None = None,
    admin_group: str | None = None,
    grace_seconds: float | None = None,
    isolate: bool | None = None,
    move: bool = False,
) -> ShareConfig:
    """Create a share, or change an existing one, whose leases, history, and policy stay.

    None keeps the current setting; 0 `fake_gpus` are the real GPUs. `move` takes over a share of another machine, or of this one under
    another name.
    """
    if topology and not fake_gpus:
        raise UserMistake(
            "--topology is only for test GPUs; the topology of real ones is discovered"
        )
    graph = _build_graph(topology, fake_gpus) if topology and fake_gpus else None
    before = ShareConfig(())
    with contextlib.suppress(GpuyardError):  # there is none yet, or it is unreadable
        before = read_config(directory)
    boot_id = Clock().boot_id
    if not move:
        before.check_machine(directory, boot_id)
    if fake_gpus is None and any(gpu.fake for gpu in before.gpus):
        gpus, rates = before.gpus, before.rates
    elif fake_gpus:
        gpus = _declare_fake_gpus(fake_gpus, topology)
        rates = _calculate_rates(graph, fake_gpus)
    else:
        gpus, rates = _discover_gpus(), _discover_rates()
    isolation = ""
    if isolate or (isolate is None and before.isolation):
        isolation = find_usable_kind()
        gpus = tuple(replace(gpu, device=_device_path(gpu, directory)) for gpu in gpus)
    config = replace(
        before,
        gpus=gpus,
        admin_group=admin_group or before.admin_group,
        grace_seconds=before.grace_seconds if grace_seconds is None else grace_seconds,
        rates=rates,
        isolation=isolation,
        machine=MachineIdentity.of_this_machine(boot_id),
    )
    create_directory(directory)
    if isolation and any(gpu.fake for gpu in gpus):
        _create_fake_devices(config)
    with lock_config(directory):
        with contextlib.suppress(GpuyardError):
            # keep the scheduler: two at once would hand out the same GPU twice
            now = read_config(directory)
            config = replace(config, scheduler=now.scheduler, slurm_drained=now.slurm_drained)
        config.write(directory)
    close_to_others(directory / DATABASE)
    Store(directory).close()
    if os.geteuid() == 0:  # every user may read it, whatever root's umask is
        config_file(directory).chmod(0o644)
    return config


def check_public_install(directory: Path) -> None:
    """Raise GpuyardError if other users can reach the share but cannot run this gpuyard."""
    if (problem := _find_private_part(directory)) is not None:
        raise GpuyardError(
            f"other users cannot {problem}, so they could not lease from this share; for root alone, for example in a "
            "container, add --no-service; for everyone, install gpuyard where everyone can run it, for example in a "
            "virtual environment in /opt/gpuyard with the system's Python, and run its `gpuyard share setup`"
        )


def _find_private_part(directory: Path) -> str | None:
    """Return what other users cannot run or read of this gpuyard; None if they can, or cannot reach the share."""
    if not _is_open_to_all(directory.absolute().parent, stat.S_IXOTH):
        return None
    interpreter = Path(sys.executable)
    needed = {
        interpreter: stat.S_IXOTH,
        interpreter.resolve(): stat.S_IXOTH,
        Path(os.__file__): stat.S_IROTH,
        Path(__file__): stat.S_IROTH,
    }
    for path, permission in needed.items():
        if not _is_open_to_all(path, permission):
            return f"{'run' if permission == stat.S_IXOTH else 'read'} {path}"
    return None


def _is_open_to_all(path: Path, permission: int) -> bool:
    """Return whether other users have a permission on a path, and can enter the directories that lead to it."""
    with contextlib.suppress(FileNotFoundError):  # root creates it later
        if not path.stat().st_mode & permission:
            return False
    return all(parent.stat().st_mode & stat.S_IXOTH for parent in path.parents if parent.exists())


def _device_path(gpu: SharedGpu, directory: Path) -> str:
    if gpu.fake:
        return str(directory.absolute() / _FAKE_DEVICES / f"gpu{gpu.index}")
    return device_file(gpu)


def _create_fake_devices(config: ShareConfig) -> None:
    """Create device nodes that can be allowed and denied, but have no driver."""
    for gpu in config.gpus:
        path = Path(gpu.device or "")
        path.parent.mkdir(mode=0o755, exist_ok=True)
        path.unlink(missing_ok=True)
        os.mknod(path, 0o020_666, os.makedev(*fake_device_number(gpu.index)))
        path.chmod(0o666)


def create_directory(directory: Path) -> None:
    """Create the directory of a share. Root's is readable by everyone; the locks are always private to the owner."""
    try:
        if os.geteuid() == 0:
            _check_parents(directory)
        directory.mkdir(parents=True, exist_ok=True)
        if directory.stat().st_uid != os.geteuid():
            raise _owned_by_another(directory)
        directory.chmod(0o755 if os.geteuid() == 0 else 0o700)
        locks = directory / LOCKS
        locks.mkdir(exist_ok=True)
        locks.chmod(0o700)
    except OSError as error:
        raise GpuyardError(f"{directory} cannot be created: {error.strerror}") from error


def _check_parents(directory: Path) -> None:
    """Check that only root can change the path of the share, because the service follows it as root."""
    starts = (directory.parent.resolve(), directory.resolve().parent)
    for parent in {path for start in starts for path in (start, *start.parents)}:
        with contextlib.suppress(FileNotFoundError):  # root creates it later
            status = parent.stat()
            others = status.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
            if status.st_uid != 0 or (others and not status.st_mode & stat.S_ISVTX):
                raise GpuyardError(
                    f"root cannot share GPUs in {directory}: users who may write to {parent} could "
                    "replace it; name another directory"
                )
    with contextlib.suppress(FileNotFoundError):
        if directory.lstat().st_uid != 0:
            raise _owned_by_another(directory)


def _owned_by_another(directory: Path) -> GpuyardError:
    return GpuyardError(f"{directory} belongs to another user; name another directory")


def _declare_fake_gpus(count: int, topology: str | None) -> tuple[SharedGpu, ...]:
    """Declare test GPUs. With a topology, they have the price of its usual GPU."""
    catalog = None
    if topology:
        from gpuyard.hardware import PRESETS

        catalog = PRESETS[topology].default_gpu
    plain = SharedGpu(0, "test GPU", _FAKE_MEMORY_BYTES, fake=True, catalog=catalog)
    return tuple(replace(plain, index=i) for i in range(count))


def _discover_gpus() -> tuple[SharedGpu, ...]:
    gpus = discover_gpus()
    if not gpus:
        alone = os.geteuid() == 0 and _find_private_part(setup_directory()) is not None
        raise MissingRequirement(
            "no GPU found on this machine; to try leases without one, declare test GPUs with: "
            f"gpuyard share setup --fake-gpus 8{' --no-service' if alone else ''}"
        )
    from gpuyard.hardware.product_names import find_catalog_gpu

    rows = [find_catalog_gpu(gpu.name) for gpu in gpus]
    return tuple(
        replace(gpu, catalog=row.id if row else None) for gpu, row in zip(gpus, rows, strict=True)
    )


def _build_graph(topology: str, gpus: int) -> "MachineGraph":
    from gpuyard.catalog import gpus as catalog_gpus
    from gpuyard.hardware import PRESETS, build_preset

    preset = PRESETS.get(topology)
    if preset is None:
        raise UnknownName("topology", topology, PRESETS)
    return build_preset(topology, catalog_gpus().get(preset.default_gpu), gpus)


def _discover_rates() -> dict[int, float]:
    from gpuyard.hardware.discover import discover_machine

    try:
        graph = discover_machine()
    except GpuyardError:
        return {}
    return _calculate_rates(graph, len(graph.gpus))


def _calculate_rates(graph: "MachineGraph | None", count: int) -> dict[int, float]:
    """Calculate the all-reduce rate of every set of GPUs (on large machines, of every pair) once for all leases."""
    if graph is None or count > len(graph.gpus):
        return {}
    from gpuyard.hardware import estimate_all_reduce

    largest = count if count <= MAX_TABULATED_GPUS else 2
    sets = (gpus for size in range(2, largest + 1) for gpus in combinations(range(count), size))
    return {
        gpu_mask(gpus): estimate_all_reduce(graph, [graph.gpus[i] for i in gpus]).bytes_per_second
        for gpus in sets
    }
