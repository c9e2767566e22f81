"""This process and its machine: how long it has run and waited for a CPU, its GPU, and what the machine consists of."""

import os
import sys


def read_cpu_wait_ns() -> int:
    """Return how long this process's main thread was ready to run while others had the CPU; 0 if unknown."""
    try:
        with open("/proc/self/schedstat", "rb") as file:  # noqa: PTH123
            return int(file.read().split()[1])
    except (OSError, ValueError, IndexError):
        return 0


def find_device() -> int | None:
    """Return the number of the GPU on its host, if the training uses one."""
    torch = sys.modules.get("torch")
    try:
        if torch is None or not torch.cuda.is_initialized():
            return None
        device = int(torch.cuda.current_device())
        visible = os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",")
        chosen = visible[device].strip() if device < len(visible) else ""
        return int(chosen) if chosen.isdigit() else device
    except Exception:  # noqa: BLE001 - a broken driver must not stop the training
        return None


def read_process_seconds() -> float | None:
    """Return how long this process has run; None if the system does not say."""
    try:
        with open("/proc/self/stat", "rb") as file:  # noqa: PTH123
            started_ticks = int(file.read().rpartition(b")")[2].split()[19])
        with open("/proc/uptime", "rb") as file:  # noqa: PTH123
            uptime = float(file.read().split()[0])
        return max(0.0, round(uptime - started_ticks / os.sysconf("SC_CLK_TCK"), 3))
    except (OSError, ValueError, IndexError):
        return None


def describe_testbed() -> dict[str, object]:
    """Describe this process and its machine; GPUs are named only if the training itself imported torch."""
    import platform

    from gpuyard.cpu import cpu_model, os_name, usable_cores
    from gpuyard.version import __version__

    torch = sys.modules.get("torch")
    gpus: list[str] = []
    if torch is not None and torch.cuda.is_available():
        gpus = [torch.cuda.get_device_name(i)[:100] for i in range(torch.cuda.device_count())]
        gpus = _add_hidden_gpus(gpus)
    return {
        "gpuyard": __version__,
        "torch": str(getattr(torch, "__version__", "none"))[:50],
        "python": platform.python_version(),
        "os": os_name()[:100],
        "kernel": platform.release()[:100],
        "host": platform.node()[:100],
        "cpu_model": cpu_model()[:100],
        "cores": len(usable_cores()),
        "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "gpus": gpus[:64],
        "threads_per_worker": 0 if torch is None else int(torch.get_num_threads()),
    }


def _add_hidden_gpus(visible: list[str]) -> list[str]:
    """Add the machine's GPUs that a lease hides; if all are alike, the driver knows their number."""
    try:
        count = len(os.listdir("/proc/driver/nvidia/gpus"))  # noqa: PTH208
    except OSError:
        return visible
    return visible[:1] * count if len(set(visible)) == 1 and count > len(visible) else visible
