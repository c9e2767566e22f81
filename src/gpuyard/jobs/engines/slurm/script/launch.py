"""What a node of a job starts: its command, where torchrun is told of the nodes and where they meet."""

import json
import os
import re
import signal
import socket
import sys
import time
from typing import Dict, List, Set

from gpuyard.jobs.engines.slurm.script.nodes import JobNodes, environment_of
from gpuyard.jobs.engines.slurm.script.place import Document, TaskDirectory, exact
from gpuyard.jobs.engines.slurm.script.running import HeardSignals, Launch, Running, ask

LAST_WORDS_SECONDS = 10.0
TORCHRUN = re.compile(r"torchrun|torch\.distributed\.(?:run|launch)")
WITHOUT_VALUE = frozenset({"--standalone", "-m", "--module", "--no-python", "--run-path"})
OWN_MEETING = frozenset(
    {"--standalone", "--rdzv-backend", "--rdzv-endpoint", "--master-addr", "--node-rank"}
)


def words_of_torchrun(argv: List[str]) -> int:
    """How many words of the command start torchrun; 0: it is not torchrun."""
    program = os.path.basename(argv[0])
    if TORCHRUN.fullmatch(program):
        return 1
    for place in range(1, min(len(argv) - 1, 4)):
        if (
            program.startswith("python")
            and argv[place] == "-m"
            and TORCHRUN.fullmatch(argv[place + 1])
        ):
            return place + 2
    return 0


def given_options(words: List[str]) -> Set[str]:
    """Those of torchrun, up to the script that it runs."""
    found = set()
    value = False
    for word in words:
        if word.startswith("-"):
            name, equals, _ = word.partition("=")
            found.add(name.replace("_", "-"))
            value = not equals and name not in WITHOUT_VALUE
        elif value:
            value = False
        else:
            break
    return found


def command(job: Document, nodes: List[str], node: int, meeting: Document) -> List[str]:
    argv: List[str] = job["argv"]
    words = words_of_torchrun(argv)
    if not words:
        return argv
    given = given_options(argv[words:])
    added = []
    if "--nproc-per-node" not in given:
        added.append(f"--nproc-per-node={job['gpus_per_node']}")
    if len(nodes) > 1 and "--nnodes" not in given:
        added.append(f"--nnodes={len(nodes)}")
    if given & OWN_MEETING:
        return argv[:words] + added + argv[words:]
    if len(nodes) == 1:
        added.append("--standalone")  # other jobs on this node have the usual port
    else:
        addresses = meeting["addresses"]
        host = f"[{addresses[0]}]" if ":" in addresses[0] else addresses[0]
        added += [
            "--rdzv-backend=c10d",
            f"--rdzv-endpoint={host}:{meeting['port']}",
            f"--rdzv-id={meeting['id']}",
            f"--rdzv-conf=is_host={'true' if node == 0 else 'false'}",
        ]
        if "--local-addr" not in given and addresses[node] != nodes[node]:
            added.append(f"--local-addr={addresses[node]}")
    return argv[:words] + added + argv[words:]


def environment(
    job: Document, nodes: List[str], node: int, meeting: Document
) -> Dict[bytes, bytes]:
    own = dict(job["environment"])
    own["GPUYARD_NODES"] = str(len(nodes))
    own["GPUYARD_GPUS"] = str(len(nodes) * job["gpus_per_node"])
    if len(nodes) > 1 and not words_of_torchrun(job["argv"]):
        own["MASTER_ADDR"] = meeting["addresses"][0]
        own["MASTER_PORT"] = str(meeting["port"])
        own["NNODES"] = str(len(nodes))
        own["NODE_RANK"] = str(node)
    found = dict(os.environb)
    found.update((exact(name), exact(value)) for name, value in own.items())
    return found


def meeting_of(nodes: List[str], uuid: str, start: str) -> Document:
    """On the first node, which is this one: a port that is free, and addresses, as names need not resolve."""
    with socket.socket() as free:
        free.bind(("", 0))
        port = free.getsockname()[1]
    listed = ask("scontrol", "--oneliner", "show", "node", ",".join(nodes))
    known = dict(re.findall(r"^NodeName=(\S+) .*?\bNodeAddr=(\S+)", listed, re.MULTILINE))
    addresses = [known.get(node, node) for node in nodes]
    return {"addresses": addresses, "port": port, "id": f"{uuid}-{start}", "start": start}


def start_here(
    job: Document, nodes: List[str], node: int, meeting: Document, output: int, place: TaskDirectory
) -> Running:
    argv = [exact(word) for word in command(job, nodes, node, meeting)]
    variables = environment(job, nodes, node, meeting)
    variables[b"GPUYARD_STEPS"] = place.file(f"{meeting['start']}.steps")  # for gpuyard.step()
    return Running([(argv, variables)], exact(job["cwd"]), output, place)


def start_on_nodes(
    nodes: JobNodes, meeting: Document, script: bytes, output: int, place: TaskDirectory
) -> Running:
    """This script once on each node, by srun."""
    launches: List[Launch] = []
    first = 0
    for number, part in nodes.parts:
        count = f"--nodes={len(part)}"
        words = ["srun", f"--jobid={number}", count, f"--ntasks={len(part)}", "--ntasks-per-node=1"]
        words += ["--kill-on-bad-exit=1", "--export=ALL", "--cpu-bind=none", "--mpi=none"]
        words += ["--label", "--chdir=/", sys.executable, "-I"]
        told = {"nodes": nodes.all(), "first": first, "meeting": meeting, "token": place.token}
        argv = [exact(word) for word in words] + [script, b"node", json.dumps(told).encode()]
        launches.append((argv, environment_of(number, nodes.own)))
        first += len(part)
    return Running(launches, b"/", output, place)


def signal_of(job: Document) -> int:
    """What tells it to write a checkpoint and end."""
    name = job["checkpoint"]["signal"] if job["checkpoint"] else "SIGTERM"
    return int(getattr(signal, name))


def signal_job(job: Document, running: Running) -> None:
    """torchrun would kill its ranks 30 s after a signal, whatever they still write: they get it straight."""
    running.send(signal_of(job), to_children=bool(words_of_torchrun(job["argv"])))


def run_on_node(job: Document, told_by_first: Document) -> int:
    """One node of several."""
    told, place = HeardSignals(), TaskDirectory(job["directory"], told_by_first["token"])
    place.join()
    node = told_by_first["first"] + int(os.environ["SLURM_PROCID"])
    running = start_here(job, told_by_first["nodes"], node, told_by_first["meeting"], 1, place)

    signalled = False

    def look() -> None:
        nonlocal signalled
        if not signalled and place.is_told_to_end(told_by_first["meeting"]["start"]):
            signalled = True
            signal_job(job, running)

    status = running.wait(told, look)
    if status:
        time.sleep(
            LAST_WORDS_SECONDS
        )  # srun ends the other nodes with this one: one of them may know why
    return status
