"""Check the GPUs of every machine, whatever its roles: driver, model, count, and whether CUDA starts."""

import json
import shlex
from collections import Counter
from typing import Any

from gpuyard.catalog import Gpu
from gpuyard.deploy.access.remote import last_line
from gpuyard.deploy.state import Host
from gpuyard.deploy.verify.check import CheckResult, VerificationContext
from gpuyard.hardware.clusters import resolve_machine
from gpuyard.hardware.product_names import find_catalog_gpu

_NAME = "GPUs"
_FABRIC = "Elastic Fabric Adapters"
_NOT_READY = 802  # CUDA_ERROR_SYSTEM_NOT_READY: the NVSwitches have not been started
_PROBE = """
import ctypes, json, pathlib, subprocess, sys
answer = {"gpus": [], "error": "", "cuda": None, "adapters": 0, "fabric": 0}
def run(*argv):
    done = subprocess.run(argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, universal_newlines=True, timeout=50)
    return done.returncode, done.stdout.strip()
try:
    status, output = run("nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader")
    if status == 0:
        answer["gpus"] = [line.rpartition(", ")[::2] for line in output.splitlines()]
        answer["cuda"] = ctypes.CDLL("libcuda.so.1").cuInit(0)
    else:
        answer["error"] = output.splitlines()[0] if output else "nvidia-smi exits with status %d" % status
except FileNotFoundError:
    answer["error"] = "nvidia-smi not found"
except (OSError, subprocess.TimeoutExpired) as error:
    answer["error"] = str(error)
for device in pathlib.Path("/sys/bus/pci/devices").glob("*"):
    answer["adapters"] += (device / "vendor").read_text().strip() == "0x1d0f" and (
        device / "device").read_text().startswith("0xefa")
if answer["adapters"]:
    try:
        output = run("/opt/amazon/efa/bin/fi_info", "-p", "efa", "-t", "FI_EP_RDM")[1]
        answer["fabric"] = len({line for line in output.splitlines() if line.strip().startswith("domain:")})
    except (OSError, subprocess.TimeoutExpired):
        pass
json.dump(answer, sys.stdout)
"""
_COMMAND = f"python3 -c {shlex.quote(_PROBE)}"
# A lab's machines have device nodes that stand in for GPUs.
_COUNT_DEVICES = "ls /dev | grep -c '^nvidia[0-9]*$'"


def check_gpus(context: VerificationContext) -> list[CheckResult]:
    gpu, machine = resolve_machine(context.loaded.cluster)
    if context.loaded.target.kind == "lab":
        return context.check_each(
            context.hosts, lambda host: _count_devices(context, host, machine.gpus)
        )
    if gpu.vendor != "NVIDIA":
        return []

    def probe(host: Host) -> list[CheckResult]:
        done = context.run(host, _COMMAND)
        try:
            answer = json.loads(done.stdout)
        except ValueError:
            return [CheckResult(_NAME, host.name, False, last_line(done.stderr))]
        return evaluate_probe(answer, host.name, gpu, machine.gpus)

    return [result for results in context.check_each(context.hosts, probe) for result in results]


def evaluate_probe(answer: dict[str, Any], host: str, gpu: Gpu, gpus: int) -> list[CheckResult]:
    """Return the checks of one machine from what it reports, given the GPUs that the cluster's file describes."""
    ok, detail = _judge_gpus(answer, gpu, gpus)
    checks = [CheckResult(_NAME, host, ok, detail)]
    adapters, usable = answer["adapters"], answer["fabric"]
    if adapters:
        words = f"libfabric reaches {usable} of {adapters}"
        if usable < adapters:
            words += "; the role gpu-stack installs it"
        checks.append(CheckResult(_FABRIC, host, usable >= adapters, words))
    return checks


def _judge_gpus(answer: dict[str, Any], gpu: Gpu, gpus: int) -> tuple[bool, str]:
    if not answer["gpus"]:
        return False, f"no driver: {answer['error']}; the role gpu-stack installs one"
    models = Counter(name for name, _ in answer["gpus"])
    driver = answer["gpus"][0][1]
    described = (
        f"{' and '.join(f'{count} × {name}' for name, count in models.items())}, driver {driver}"
    )
    expected = f"; the cluster's file says {gpus} × {gpu.name}"
    if sum(models.values()) != gpus:
        return False, described + expected
    for name in models:
        match = find_catalog_gpu(name)
        if match is not None and match.id != gpu.id:
            return False, described + expected
    if answer["cuda"] == _NOT_READY:
        return False, f"{described}; CUDA is not ready (error 802): nvidia-fabricmanager must run"
    if answer["cuda"] != 0:
        return False, f"{described}; CUDA does not start: {answer['error'] or answer['cuda']}"
    return True, described


def _count_devices(context: VerificationContext, host: Host, gpus: int) -> CheckResult:
    count = context.run(host, _COUNT_DEVICES).stdout.strip()
    return CheckResult(_NAME, host.name, count == str(gpus), f"{count or 0} emulated")
