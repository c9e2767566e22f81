"""`python -P -m gpuyard.lab.operation`: one operation on labs and their machines, JSON in and out.

For processes that have threads, as Terraform's providers do: making a namespace forks, and that goes wrong beside them.
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

_SECONDS = 2400.0  # the first machine may have to wait for its root to be made


def call(do: str, **what: Any) -> Any:
    """Have another process do it. Raises GpuyardError in its words."""
    done = subprocess.run(
        module_argv("gpuyard.lab.operation"),
        input=json.dumps({"do": do, **what}),
        capture_output=True,
        text=True,
        check=False,
        timeout=_SECONDS,
        env={**os.environ, **import_path()},
    )
    try:
        answer = json.loads(done.stdout)
    except ValueError:
        said = done.stderr.strip().splitlines()
        raise GpuyardError(f"{do} of a lab failed: {said[-1] if said else 'no words'}") from None
    if "error" in answer:
        raise GpuyardError(answer["error"])
    return answer["value"]


def main() -> None:
    asked = json.load(sys.stdin)
    try:
        answer = {"value": _DO[asked.pop("do")](**asked)}
    except GpuyardError as error:
        answer = {"error": str(error)}
    json.dump(answer, sys.stdout)


def _up(name: str, nodes: int, link: str) -> Any:
    return _described(lab.up(lab.plan_lab(nodes, link, name=name)))


def _find(name: str) -> Any:
    """None where there is none, or nothing of it is left."""
    lab.remove_orphans()
    if all(known.plan.name != name for known, _ in lab.labs()):
        return None
    return _described(lab.find(name))


def _down(name: str) -> None:
    if any(known.plan.name == name for known, _ in lab.labs()):
        lab.down(name)


def _start(name: str, node: int, directory: str, **more: Any) -> Any:
    found = lab.find(name).node(str(node))
    mounts = [(Path(path), path) for path in more.pop("mounts")]
    base = machine_root.make_root(more.pop("packages"), more.pop("release"))
    machine = machines.start(found, base, Path(directory), mounts=mounts, **more)
    return {
        "name": found.name,
        "address": found.address,
        "host_key": machine.host_key,
        "namespace": found.namespace,
    }


def _is_up(directory: str) -> bool:
    return machines.LabMachine("", Path(directory)).up


def _remove(name: str, directory: str) -> None:
    machines.remove(machines.LabMachine(name, Path(directory)))


def _described(found: lab.Lab) -> dict[str, Any]:
    return {
        "rate_bytes_per_second": found.nodes[0].rate_bytes_per_second,
        "addresses": [node.address for node in found.nodes],
    }


_DO: dict[str, Callable[..., Any]] = {
    "set_rates": lab.set_rates,
    "up": _up,
    "find": _find,
    "down": _down,
    "start": _start,
    "is_up": _is_up,
    "remove": _remove,
}

if __name__ == "__main__":
    main()
