"""Making a share: its directory, its GPUs with their topology, and an empty store."""

import contextlib
import os
import stat
from dataclasses import replace
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING

from gpuyard.errors import GpuyardError, MissingRequirement, UnknownName, UserMistake
from gpuyard.files import write_text
from gpuyard.share.isolation.devices import device_file, device_number
from gpuyard.share.isolation.groups import usable_kind
from gpuyard.share.store.broker import DATABASE, LOCKS, Broker
from gpuyard.share.store.clock import Clock
from gpuyard.share.store.config import (
    ADMIN_GROUP,
    MachineIdentity,
    ShareConfig,
    SharedGpu,
    config_file,
    read_config,
)
from gpuyard.share.store.database import close_to_others
from gpuyard.share.turns.choice import MOST_TABLED, mask

if TYPE_CHECKING:
    from gpuyard.hardware import MachineGraph

_FAKE_DEVICES = "devices"
_FAKE_MEMORY_BYTES = 24_000_000_000
MOST_GPUS = 64


def set_up(
    directory: Path,
    *,
    fake_gpus: int = 0,
    topology: str | None = None,
    admin_group: str = ADMIN_GROUP,
    grace_seconds: float = 5.0,
    isolate: bool | None = None,
    move: bool = False,
) -> ShareConfig:
    """Make it, or change what one that is there has; leases, history and policy stay. `isolate` None: as before.

    `move`: one of another machine, or of this one under another name, becomes this machine's.
    """
    if topology and not fake_gpus:
        raise UserMistake("--topology is for test GPUs; that of real ones is discovered")
    graph = _graph(topology, fake_gpus) if topology else None
    before = ShareConfig(())
    with contextlib.suppress(GpuyardError):  # there is none yet, or it can't be read
        before = read_config(directory)
    boot_id = Clock().boot_id
    if not move:
        before.check_machine(directory, boot_id)
    gpus = _fake(fake_gpus, topology) if fake_gpus else _found()
    isolation = ""
    if isolate or (isolate is None and before.isolation):
        isolation = usable_kind()
        gpus = tuple(replace(gpu, device=_device(gpu, directory)) for gpu in gpus)
    config = ShareConfig(
        gpus,
        admin_group=admin_group,
        grace_seconds=grace_seconds,
        rates=_rates(graph, fake_gpus) if fake_gpus else _rates_here(),
        # who gives the GPUs out stays so: two who do would give one of them twice
        scheduler=before.scheduler,
        isolation=isolation,
        rules=before.rules,
        machine=MachineIdentity.this(boot_id),
    )
    make_directory(directory)
    if isolation and fake_gpus:
        _make_devices(config)
    write_text(config_file(directory), config.text(), mode=0o644)
    close_to_others(directory / DATABASE)
    Broker(directory).close()
    if os.geteuid() == 0:  # others may look, and only the owner may write
        config_file(directory).chmod(0o644)
    return config


def _device(gpu: SharedGpu, directory: Path) -> str:
    if gpu.fake:
        return str(directory.absolute() / _FAKE_DEVICES / f"gpu{gpu.index}")
    return device_file(gpu)


def _make_devices(config: ShareConfig) -> None:
    """Nodes that can be allowed and denied, and do nothing when they are opened."""
    for gpu in config.gpus:
        path = Path(gpu.device or "")
        path.parent.mkdir(mode=0o755, exist_ok=True)
        path.unlink(missing_ok=True)
        os.mknod(path, 0o020_666, os.makedev(*device_number(gpu.index)))
        path.chmod(0o666)


def make_directory(directory: Path) -> None:
    """Root's is for everybody to read; one person's is their own. The locks are the owner's alone."""
    try:
        if os.geteuid() == 0:
            _check_place(directory)
        directory.mkdir(parents=True, exist_ok=True)
        if directory.stat().st_uid != os.geteuid():
            raise GpuyardError(f"{directory} belongs to another user; name another one")
        directory.chmod(0o755 if os.geteuid() == 0 else 0o700)
        locks = directory / LOCKS
        locks.mkdir(exist_ok=True)
        locks.chmod(0o700)
    except OSError as error:
        raise GpuyardError(f"{directory} can't be made: {error.strerror}") from error


def _check_place(directory: Path) -> None:
    """The service goes this way as root: nobody else may say where it leads."""
    places = (directory.parent.resolve(), directory.resolve().parent)
    for parent in {one for place in places for one in (place, *place.parents)}:
        with contextlib.suppress(FileNotFoundError):  # it is made then, as root's
            status = parent.stat()
            others = status.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
            if status.st_uid != 0 or (others and not status.st_mode & stat.S_ISVTX):
                raise GpuyardError(
                    f"{directory} can't be a share of root's: it is in {parent}, and who may write there could "
                    "replace it; name another directory"
                )
    with contextlib.suppress(FileNotFoundError):
        if directory.lstat().st_uid != 0:
            raise GpuyardError(f"{directory} belongs to another user; name another one")


def _fake(count: int, topology: str | None) -> tuple[SharedGpu, ...]:
    """With a topology, they are priced as the GPUs that it usually has."""
    catalog = None
    if topology:
        from gpuyard.hardware import PRESETS

        catalog = PRESETS[topology].usual_gpu
    plain = SharedGpu(0, "test GPU", _FAKE_MEMORY_BYTES, fake=True, catalog=catalog)
    return tuple(replace(plain, index=i) for i in range(count))


def _found() -> tuple[SharedGpu, ...]:
    from gpuyard.share.watch.gpus import found_gpus

    gpus = found_gpus()
    if not gpus:
        raise MissingRequirement(
            "no GPU was found here that could be shared; to try it without, declare test GPUs with: "
            "gpuyard share setup --fake-gpus 8"
        )
    from gpuyard.hardware.product_names import catalog_gpu

    rows = [catalog_gpu(gpu.name) for gpu in gpus]
    return tuple(
        replace(gpu, catalog=row.id if row else None) for gpu, row in zip(gpus, rows, strict=True)
    )


def _graph(topology: str, gpus: int) -> "MachineGraph":
    from gpuyard.catalog import gpus as known_gpus
    from gpuyard.hardware import PRESETS, build_preset

    preset = PRESETS.get(topology)
    if preset is None:
        raise UnknownName("topology", topology, PRESETS)
    return build_preset(topology, known_gpus().get(preset.usual_gpu), gpus)


def _rates_here() -> dict[int, float]:
    from gpuyard.hardware.discover import discover_machine

    try:
        graph = discover_machine()
    except GpuyardError:
        return {}
    return _rates(graph, len(graph.gpus))


def _rates(graph: "MachineGraph | None", count: int) -> dict[int, float]:
    """Of every set of GPUs once, so that a lease need not look at the machine again; of many GPUs, of every pair."""
    if graph is None or count > len(graph.gpus):
        return {}
    from gpuyard.hardware import all_reduce

    largest = count if count <= MOST_TABLED else 2
    sets = (gpus for size in range(2, largest + 1) for gpus in combinations(range(count), size))
    return {
        mask(gpus): all_reduce(graph, [graph.gpus[i] for i in gpus]).bytes_per_second
        for gpus in sets
    }
