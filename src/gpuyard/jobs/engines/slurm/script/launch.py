"""The command that each node starts; torchrun gets the options that describe the nodes and their rendezvous."""

import json
import os
import re
import signal
import socket
import sys
import time
from typing import Dict, List, Optional, Set

from gpuyard.jobs.engines.slurm.script.nodes import JobNodes, srun_environment
from gpuyard.jobs.engines.slurm.script.processes import (
    POLL_SECONDS,
    Launch,
    ProcessGroup,
    SignalState,
    run_slurm,
)
from gpuyard.jobs.engines.slurm.script.task_directory import (
    FINISHED,
    NOT_STARTED,
    Document,
    TaskDirectory,
    encode,
)

FAILURE_DELAY_SECONDS = 10.0
SIGN_OF_LIFE_SECONDS = 10.0
MAX_SILENCE_SECONDS = 300.0  # A shared disk may show the nodes' signs of life with a delay.
MAX_LAUNCH_SECONDS = 900.0
TORCHRUN = re.compile(r"torchrun|torch\.distributed\.(?:run|launch)")
FLAGS = frozenset({"--standalone", "-m", "--module", "--no-python", "--run-path"})
RENDEZVOUS_OPTIONS = frozenset(
    {"--standalone", "--rdzv-backend", "--rdzv-endpoint", "--master-addr", "--node-rank"}
)


def count_torchrun_words(argv: List[str]) -> int:
    """Count the words of the command that start torchrun; 0 if it is another command."""
    program = os.path.basename(argv[0])
    if TORCHRUN.fullmatch(program):
        return 1
    for i in range(1, min(len(argv) - 1, 4)):
        if program.startswith("python") and argv[i] == "-m" and TORCHRUN.fullmatch(argv[i + 1]):
            return i + 2
    return 0


def parse_torchrun_options(words: List[str]) -> Set[str]:
    """Return the names of torchrun's options, up to the script that it runs."""
    names = set()
    expects_value = False
    for word in words:
        if word.startswith("-"):
            name, equals, _ = word.partition("=")
            names.add(name.replace("_", "-"))
            expects_value = not equals and name not in FLAGS
        elif expects_value:
            expects_value = False
        else:
            break
    return names


def build_command(job: Document, nodes: List[str], node: int, rendezvous: Document) -> List[str]:
    argv: List[str] = job["argv"]
    words = count_torchrun_words(argv)
    if not words:
        return argv
    options = parse_torchrun_options(argv[words:])
    added = []
    if "--nproc-per-node" not in options:
        added.append(f"--nproc-per-node={job['gpus_per_node']}")
    if len(nodes) > 1 and "--nnodes" not in options:
        added.append(f"--nnodes={len(nodes)}")
    if options & RENDEZVOUS_OPTIONS:
        pass
    elif len(nodes) == 1:
        added.append("--standalone")  # Another job on this node may use the default port.
    else:
        addresses = rendezvous["addresses"]
        host = f"[{addresses[0]}]" if ":" in addresses[0] else addresses[0]
        added += [
            "--rdzv-backend=c10d",
            f"--rdzv-endpoint={host}:{rendezvous['port']}",
            f"--rdzv-id={rendezvous['id']}",
            f"--rdzv-conf=is_host={'true' if node == 0 else 'false'}",
        ]
        if "--local-addr" not in options and addresses[node] != nodes[node]:
            added.append(f"--local-addr={addresses[node]}")
    return argv[:words] + added + argv[words:]


def build_environment(
    job: Document, nodes: List[str], node: int, rendezvous: Document
) -> Dict[bytes, bytes]:
    own = dict(job["environment"])
    own["GPUYARD_NODES"] = str(len(nodes))
    own["GPUYARD_GPUS"] = str(len(nodes) * job["gpus_per_node"])
    if len(nodes) > 1 and not count_torchrun_words(job["argv"]):
        own["MASTER_ADDR"] = rendezvous["addresses"][0]
        own["MASTER_PORT"] = str(rendezvous["port"])
        own["NNODES"] = str(len(nodes))
        own["NODE_RANK"] = str(node)
    return add_variables(own)


def add_variables(variables: Dict[str, str]) -> Dict[bytes, bytes]:
    """Return this script's environment with these variables."""
    environment = dict(os.environb)
    environment.update((encode(name), encode(value)) for name, value in variables.items())
    return environment


def create_rendezvous(nodes: List[str], uuid: str, start: str) -> Document:
    """Find a free port on this node, which is the first, and the nodes' addresses, as their names need not resolve."""
    with socket.socket() as free:
        free.bind(("", 0))
        port = free.getsockname()[1]
    output = run_slurm("scontrol", "--oneliner", "show", "node", ",".join(nodes))
    by_name = dict(re.findall(r"^NodeName=(\S+) .*?\bNodeAddr=(\S+)", output, re.MULTILINE))
    addresses = [by_name.get(node, node) for node in nodes]
    return {"addresses": addresses, "port": port, "id": f"{uuid}-{start}", "start": start}


def start_here(
    job: Document,
    nodes: List[str],
    node: int,
    rendezvous: Document,
    output: int,
    directory: TaskDirectory,
) -> ProcessGroup:
    argv = [encode(word) for word in build_command(job, nodes, node, rendezvous)]
    environment = build_environment(job, nodes, node, rendezvous)
    # gpuyard.step() writes its reports there.
    environment[b"GPUYARD_STEPS"] = directory.file(f"{rendezvous['start']}.steps")
    return ProcessGroup([(argv, environment)], encode(job["cwd"]), output, directory)


def start_on_nodes(
    nodes: JobNodes, rendezvous: Document, script: bytes, output: int, directory: TaskDirectory
) -> ProcessGroup:
    """Start this script once on each node with srun."""
    launches: List[Launch] = []
    first = 0
    for number, names in nodes.allocations:
        count = len(names)
        words = ["srun", f"--jobid={number}", f"--nodes={count}", f"--ntasks={count}"]
        words += ["--ntasks-per-node=1", "--kill-on-bad-exit=1", "--export=ALL", "--cpu-bind=none"]
        words += ["--mpi=none", "--label", "--chdir=/", sys.executable, "-I"]
        node_job = {
            "nodes": nodes.all(),
            "first": first,
            "rendezvous": rendezvous,
            "token": directory.token,
        }
        argv = [encode(word) for word in words] + [script, b"node", json.dumps(node_job).encode()]
        launches.append((argv, srun_environment(number, nodes.own)))
        first += count
    return ProcessGroup(launches, b"/", output, directory)


def checkpoint_signal(job: Document) -> int:
    """Return the signal on which the job writes a checkpoint and exits."""
    name = job["checkpoint"]["signal"] if job["checkpoint"] else "SIGTERM"
    return int(getattr(signal, name))


def signal_job(job: Document, processes: ProcessGroup) -> None:
    """Send the checkpoint signal; torchrun would kill its ranks 30 s later, so its ranks get the signal directly."""
    processes.send(checkpoint_signal(job), to_children=bool(count_torchrun_words(job["argv"])))


class NodeWatch:
    """Finds a node whose part of the job died unnoticed: srun waits forever if Slurm does not know its step any more.

    It compares what it sees from poll to poll, so neither the nodes' clocks nor a suspended job matter.
    """

    def __init__(self, directory: TaskDirectory, start: str, nodes: List[str]) -> None:
        self.directory, self.start, self.nodes = directory, start, nodes
        self.last: Dict[int, Optional[float]] = {}
        self.silence = [0.0] * len(nodes)
        self.polled = time.monotonic()

    def find_silent(self) -> Optional[str]:
        """Return the name of a node that has been silent for too long."""
        now = time.monotonic()
        elapsed, self.polled = min(now - self.polled, 2 * POLL_SECONDS), now
        for node, name in enumerate(self.nodes):
            seen = self.directory.read_sign_of_life(self.start, node)
            is_silent = seen == self.last.get(node) and seen not in (None, FINISHED)
            self.last[node] = seen
            self.silence[node] = self.silence[node] + elapsed if is_silent else 0.0
            limit = MAX_LAUNCH_SECONDS if seen == NOT_STARTED else MAX_SILENCE_SECONDS
            if self.silence[node] > limit:
                return name
        return None


def run_on_node(job: Document, node_job: Document) -> int:
    """Run the job's part on one of several nodes."""
    signals, directory = SignalState(), TaskDirectory(job["directory"], node_job["token"])
    directory.share_lock()
    node = node_job["first"] + int(os.environ["SLURM_PROCID"])
    rendezvous = node_job["rendezvous"]
    processes = start_here(job, node_job["nodes"], node, rendezvous, 1, directory)
    signaled, shown = False, time.monotonic()
    directory.show_life(rendezvous["start"], node)

    def poll() -> None:
        nonlocal signaled, shown
        if time.monotonic() - shown > SIGN_OF_LIFE_SECONDS:
            shown = time.monotonic()
            directory.show_life(rendezvous["start"], node)
        if not signaled and directory.checkpoint_requested(rendezvous["start"]):
            signaled = True
            signal_job(job, processes)

    status = processes.wait(signals, poll)
    directory.show_life(rendezvous["start"], node, FINISHED)
    if status:
        signals.expect_stop(status)
    if status and not signals.stop:
        directory.record_node_failure(rendezvous["start"], node)
        # srun now stops the other nodes; one of them may still print the cause.
        signals.sleep_until_stop(FAILURE_DELAY_SECONDS)
    return status
