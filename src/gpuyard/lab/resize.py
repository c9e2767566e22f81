"""Change the number of nodes and the rate of a lab that is up; the nodes that stay keep running."""

import contextlib
import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from gpuyard.errors import UserMistake
from gpuyard.lab import network, state
from gpuyard.lab.lab import Lab, check_free, find, unknown_lab
from gpuyard.lab.plan import plan_lab


def resize(name: str, nodes: int, rate_bytes_per_second: float) -> Lab:
    """Add or remove the last nodes, and set the rate of all links. After a kill, repeating it finishes the change.

    Processes on removed nodes are stopped. Processes on the others run on, on the cores of their node's new share.
    """
    old = find(name).plan
    if old.racks > 1:
        raise UserMistake(
            f"lab {name!r} has {old.racks} racks, and only a lab of one can be resized"
        )
    plan = plan_lab(
        nodes,
        rate_bytes_per_second,
        name=name,
        dilation=old.dilation,
        latency=old.latency_seconds,
    )
    with state.changing():
        lab_state = state.read(name)
        if lab_state is None:
            raise unknown_lab(name)
        check_free(name)
        token = lab_state.namespaces[0].split("-")[-2]
        names = network.namespace_names(plan, token)
        # namespaces without a record are leftovers of a change that was killed
        leftovers = set(network.namespaces_with_token(names)) - set(lab_state.namespaces)
        network.remove_network(sorted(leftovers))
        if nodes > len(old.nodes):
            network.add_nodes(plan, names, len(old.nodes))
        state.write(replace(lab_state, plan=plan, namespaces=names))
        network.remove_network(lab_state.namespaces[1 + nodes :])
        network.set_rates(plan, names, rate_bytes_per_second)
        for before, after, namespace in zip(old.nodes, plan.nodes, names[1:], strict=False):
            if before.cores != after.cores:
                _move_processes(namespace, before.cores, after.cores)
    return find(name)


def _move_processes(namespace: str, before: Sequence[int], after: Sequence[int]) -> None:
    """Pin the node's threads to its new cores, except those that a program has pinned itself."""
    for pid in network.processes_in([namespace]):
        with contextlib.suppress(OSError):
            for task in Path(f"/proc/{pid}/task").iterdir():
                with contextlib.suppress(OSError):  # it has ended meanwhile
                    if os.sched_getaffinity(int(task.name)) == set(before):
                        os.sched_setaffinity(int(task.name), after)
