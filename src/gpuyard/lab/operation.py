"""Run one operation on labs in another process: `python -P -m gpuyard.lab.operation`, JSON in and out.

Processes with threads, such as Terraform providers, need it: creating a namespace forks, which is unsafe
with threads.
"""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from gpuyard import lab
from gpuyard.errors import GpuyardError
from gpuyard.interpreter import import_path, module_argv
from gpuyard.lab import machine_root, machines

_TIMEOUT_SECONDS = 2400.0  # the first machine may have to wait for its root file system


def call(operation: str, **arguments: Any) -> Any:
    """Run the operation in another process and return its result; raise its GpuyardError."""
    process = subprocess.run(
        module_argv("gpuyard.lab.operation"),
        input=json.dumps({"do": operation, **arguments}),
        capture_output=True,
        text=True,
        check=False,
        timeout=_TIMEOUT_SECONDS,
        env={**os.environ, **import_path()},
    )
    try:
        reply = json.loads(process.stdout)
    except ValueError:
        lines = process.stderr.strip().splitlines()
        detail = lines[-1] if lines else f"exit status {process.returncode} without output"
        raise GpuyardError(f"lab operation {operation!r} failed: {detail}") from None
    if "error" in reply:
        raise GpuyardError(reply["error"])
    return reply["value"]


def main() -> None:
    request = json.load(sys.stdin)
    try:
        reply = {"value": _OPERATIONS[request.pop("do")](**request)}
    except GpuyardError as error:
        reply = {"error": str(error)}
    json.dump(reply, sys.stdout)


def _up(name: str, nodes: int, rate_bytes_per_second: float) -> Any:
    return _describe(lab.up(lab.plan_lab(nodes, rate_bytes_per_second, name=name)))


def _find(name: str) -> Any:
    """Return the lab, or None if it does not exist any more."""
    lab.remove_orphans()
    return _describe(lab.find(name)) if _exists(name) else None


def _down(name: str) -> None:
    if _exists(name):
        lab.down(name)


def _exists(name: str) -> bool:
    return any(state.plan.name == name for state, _ in lab.labs())


def _start(name: str, node: int, directory: str, **settings: Any) -> Any:
    lab_node = lab.find(name).node(str(node))
    mounts = [(Path(path), path) for path in settings.pop("mounts")]
    shared = Path(settings.pop("shared"))
    shared.mkdir(parents=True, exist_ok=True)
    base = machine_root.make_root(settings.pop("packages"), settings.pop("release"))
    machine = machines.start(
        lab_node,
        base,
        Path(directory),
        mounts=mounts,
        shared=(shared, "/srv/shared"),
        **settings,
    )
    return {
        "name": lab_node.name,
        "address": lab_node.address,
        "host_key": machine.host_key,
        "namespace": lab_node.namespace,
    }


def _resize(name: str, nodes: int, rate_bytes_per_second: float) -> Any:
    return _describe(lab.resize(name, nodes, rate_bytes_per_second))


def _is_up(name: str, node: int, directory: str) -> bool:
    """Return whether the machine runs and its sshd answers."""
    if not machines.LabMachine("", Path(directory)).up or not _exists(name):
        return False
    nodes = lab.find(name).nodes
    return node < len(nodes) and machines.answers_ssh(nodes[node])


def _stop(name: str, directory: str) -> None:
    machines.stop(machines.LabMachine(name, Path(directory)))


def _remove(name: str, directory: str) -> None:
    machines.remove(machines.LabMachine(name, Path(directory)))


def _describe(found_lab: lab.Lab) -> dict[str, Any]:
    return {
        "rate_bytes_per_second": found_lab.nodes[0].rate_bytes_per_second,
        "addresses": [node.address for node in found_lab.nodes],
    }


_OPERATIONS: dict[str, Callable[..., Any]] = {
    "set_rates": lab.set_rates,
    "up": _up,
    "resize": _resize,
    "find": _find,
    "down": _down,
    "start": _start,
    "is_up": _is_up,
    "stop": _stop,
    "remove": _remove,
}

if __name__ == "__main__":
    main()
