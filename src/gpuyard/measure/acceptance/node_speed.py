"""Measures the node that this process runs on: matrix products, memory, storage, and, with GPUs, their links."""

import os
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import psutil

from gpuyard.cpu import usable_cores
from gpuyard.measure.acceptance.records import (
    GemmWindow,
    GpuLinkRate,
    GpuRate,
    NodeSpeed,
)
from gpuyard.measure.links.memory import time_copy
from gpuyard.measure.storage.cache import (
    BLOCK,
    allocate_buffer,
    choose_cache_bypass,
    find_filesystem,
    open_file,
)
from gpuyard.temporary import temporary_directory

_GEMM_SIZE = 384  # a product takes a few milliseconds on one core
_GPU_GEMM_SIZE = 8192
_WINDOWS = 4
_MEMORY_BYTES = 64_000_000
_GPU_LINK_BYTES = 256_000_000


def measure_node(
    seconds: float, storage: Path | None, storage_bytes: int, *, shared_machine: bool = False
) -> NodeSpeed:
    """Measure this node; `seconds` is the time for matrix products on the cores.

    On a machine that several nodes share, others may use the cores: memory is then copied by one core and timed by
    its CPU time.
    """
    gemm = tuple(_time_gemm(seconds / _WINDOWS) for _ in range(_WINDOWS))
    if shared_machine:
        memory = min(
            time_copy(_MEMORY_BYTES, usable_cores()[:1], repeats=5, clock=time.thread_time)
        )
    else:
        memory = min(time_copy(_MEMORY_BYTES, usable_cores(), repeats=5))
    write = read = None
    note = "not measured"
    if storage is not None:
        write, read, note = measure_storage(storage, storage_bytes)
    gpu_gemm, gpu_links = _measure_gpus()
    return NodeSpeed(
        shared_machine=shared_machine,
        gemm=gemm,
        memory_bytes_per_second=2 * _MEMORY_BYTES / memory,
        storage_write_bytes_per_second=write,
        storage_read_bytes_per_second=read,
        storage_note=note,
        gpu_gemm=gpu_gemm,
        gpu_links=gpu_links,
    )


def _time_gemm(seconds: float) -> GemmWindow:
    """Multiply matrices for this time, and see who else used the cores meanwhile."""
    a = np.ones((_GEMM_SIZE, _GEMM_SIZE), np.float32)
    b = np.ones_like(a)
    a @ b  # the first product starts the library's threads
    cores = usable_cores()
    busy, own, throttled = _read_busy_seconds(cores), time.process_time(), read_throttled_seconds()
    start = time.perf_counter()
    products = 0
    while (elapsed := time.perf_counter() - start) < seconds:
        a @ b
        products += 1
    busy_now, throttled_now = _read_busy_seconds(cores), read_throttled_seconds()
    used = time.process_time() - own
    other = None
    if busy is not None and busy_now is not None:
        other = min(1.0, max(0.0, (busy_now - busy - used) / (elapsed * len(cores))))
    quota = None
    if throttled is not None and throttled_now is not None:
        quota = min(1.0, max(0.0, (throttled_now - throttled) / elapsed))
    flops = products * 2 * _GEMM_SIZE**3
    cores_left = read_quota_cores()
    left = 1.0 if cores_left is None else min(1.0, cores_left / len(cores))
    return GemmWindow(
        flops_per_second=flops / elapsed,
        undisturbed_flops_per_second=flops * len(cores) / used * min(left, 1 - (quota or 0.0)),
        other_share=other,
        throttled_share=quota,
        quota_share=left,
    )


def _read_busy_seconds(cores: Sequence[int]) -> float | None:
    """Return how long these cores have been busy since the start of the machine."""
    times = psutil.cpu_times(percpu=True)
    if max(cores) >= len(times):
        return None
    # a guest's time is part of user's time already
    return sum(
        sum(times[core]) - times[core].idle - getattr(times[core], "iowait", 0.0)
        - getattr(times[core], "guest", 0.0) - getattr(times[core], "guest_nice", 0.0)
        for core in cores
    )  # fmt: skip


def _find_cpu_groups(root: Path) -> list[Path]:
    """Return the directories of this process's CPU control group and those above it, of either version."""
    groups = {}
    try:
        for line in (root / "proc/self/cgroup").read_text().splitlines():
            _, controllers, path = line.split(":", 2)
            groups.update(dict.fromkeys(controllers.split(","), path.lstrip("/")))
    except (OSError, ValueError):
        return []
    base = root / "sys/fs/cgroup"
    for top, path in (
        (base, groups.get("", "")),
        (base / "cpu", groups.get("cpu", "")),
        (base / "cpu,cpuacct", groups.get("cpu", "")),
    ):
        if "nr_throttled" in _read_keys(top / path / "cpu.stat"):
            own = top / path
            return [own, *(parent for parent in own.parents if top in (parent, *parent.parents))]
    return []


def _read_keys(file: Path) -> dict[str, str]:
    try:
        return dict(line.split(maxsplit=1) for line in file.read_text().splitlines())
    except (OSError, ValueError):
        return {}


def read_throttled_seconds(root: Path = Path("/")) -> float | None:
    """Return how long a CPU quota has stopped this process's control groups; None if that is unknown."""
    stats = [_read_keys(group / "cpu.stat") for group in _find_cpu_groups(root)]
    seconds = [
        int(keys["throttled_time"]) / 1e9  # version 1, in nanoseconds
        if "throttled_time" in keys
        else int(keys.get("throttled_usec", 0)) / 1e6
        for keys in stats
    ]
    return max(seconds, default=None)


def read_quota_cores(root: Path = Path("/")) -> float | None:
    """Return the number of cores that quotas leave to this process; None if there is no quota."""
    quotas = []
    for group in _find_cpu_groups(root):
        try:
            if (group / "cpu.max").exists():
                quota, period = (group / "cpu.max").read_text().split()
            else:
                quota = (group / "cpu.cfs_quota_us").read_text().strip()
                period = (group / "cpu.cfs_period_us").read_text()
            if quota not in ("max", "-1"):
                quotas.append(int(quota) / int(period))
        except (OSError, ValueError):
            continue
    return min(quotas, default=None)


def measure_storage(directory: Path, size: int) -> tuple[float | None, float | None, str]:
    """Write a file, then read it past the page cache; return both rates, and the file system or why not."""
    filesystem = find_filesystem(directory)
    blocks = max(1, size // BLOCK)
    block = os.urandom(BLOCK)
    try:
        with temporary_directory(directory, "storage", hidden=True) as temporary:
            path = temporary / "written.bin"
            start = time.perf_counter()
            with path.open("wb") as file:
                for _ in range(blocks):
                    file.write(block)
                file.flush()
                os.fsync(file.fileno())
            write = blocks * BLOCK / (time.perf_counter() - start)
            bypass = choose_cache_bypass([path], blocks * BLOCK)
            if bypass == "none":
                return write, None, f"{filesystem}: reads cannot bypass the page cache"
            descriptor = open_file(path, bypass)
            try:
                with allocate_buffer() as buffer:
                    start = time.perf_counter()
                    for index in range(blocks):
                        os.preadv(descriptor, [buffer], index * BLOCK)
                    read = blocks * BLOCK / (time.perf_counter() - start)
            finally:
                os.close(descriptor)
    except OSError as error:
        return None, None, f"{directory} cannot be used: {error.strerror}"
    return write, read, filesystem


def _measure_gpus() -> tuple[tuple[GpuRate, ...], tuple[GpuLinkRate, ...]]:
    """Measure the rate of each GPU, then the GPUs' links as `bench links` does."""
    from gpuyard.run.probe import cuda_gpus

    names = cuda_gpus()
    if not names:
        return (), ()
    rates = tuple(_time_gpu_gemm(index) for index in range(len(names)))
    from gpuyard.measure.links.plan import plan_links
    from gpuyard.measure.links.run import run_links

    bench = run_links(plan_links(_GPU_LINK_BYTES, repeats=3))
    links = tuple(
        GpuLinkRate(
            link=link.measured.label,
            bytes_per_second=link.measured.bytes_per_second,
            expected_bytes_per_second=link.expected_bytes_per_second,
        )
        for link in bench.links
        if link.measured.kind in ("host-gpu", "gpu-gpu")
    )
    return rates, links


def _time_gpu_gemm(index: int) -> GpuRate:
    """Time half-precision products, which tensor cores compute; the first ones warm the GPU up."""
    import torch

    device = torch.device("cuda", index)
    a = torch.randn(_GPU_GEMM_SIZE, _GPU_GEMM_SIZE, device=device, dtype=torch.float16)
    best = 0.0
    for _ in range(5):
        torch.cuda.synchronize(device)
        start = time.perf_counter()
        for _ in range(10):
            a @ a
        torch.cuda.synchronize(device)
        best = max(best, 10 * 2 * _GPU_GEMM_SIZE**3 / (time.perf_counter() - start))
    return GpuRate(gpu=f"GPU{index}", flops_per_second=best)
