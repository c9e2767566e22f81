"""Complete a torchrun command for the GPUs that a job got, and find the rank that made it fail."""

import re
from collections.abc import Sequence
from pathlib import PurePath

_EXIT_STATUS = re.compile(r"exitcode\s*:\s*(-?\d+)")
_MODULE = ("-m", "torch.distributed.run")
_OPTIONS_WITH_VALUE = frozenset(
    {
        "--nnodes",
        "--nproc-per-node",
        "--rdzv-backend",
        "--rdzv-endpoint",
        "--rdzv-id",
        "--rdzv-conf",
        "--max-restarts",
        "--monitor-interval",
        "--start-method",
        "--role",
        "--log-dir",
        "-r",
        "--redirects",
        "-t",
        "--tee",
        "--local-ranks-filter",
        "--node-rank",
        "--master-addr",
        "--master-port",
        "--local-addr",
        "--logs-specs",
    }
)
"""torchrun options whose value may be the next word."""
_RENDEZVOUS_OPTIONS = (
    "--standalone",
    "--rdzv-endpoint",
    "--rdzv-backend",
    "--master-addr",
    "--node-rank",
)


def complete_torchrun_command(
    command: Sequence[str],
    *,
    gpus_per_node: int,
    addresses: Sequence[str] = ("",),
    node: int = 0,
    port: int = 0,
    run_id: str = "",
) -> tuple[str, ...]:
    """Add the number of ranks per node and the rendezvous, unless the command sets them itself.

    Other commands are returned unchanged. `addresses` has one entry per node, and `node` is the index of this one.
    """
    nodes = len(addresses)
    first_option = _find_options(command)
    if first_option is None:
        return tuple(command)
    present = _list_options(command[first_option:])
    added = []
    if nodes > 1 and "--nnodes" not in present:
        added.append(f"--nnodes={nodes}")
    if "--nproc-per-node" not in present:
        added.append(f"--nproc-per-node={gpus_per_node}")
    if not present.intersection(_RENDEZVOUS_OPTIONS):
        if nodes == 1:
            added.append("--standalone")
        else:
            host = f"[{addresses[0]}]" if ":" in addresses[0] else addresses[0]
            added += [
                "--rdzv-backend=c10d",
                f"--rdzv-endpoint={host}:{port}",
                f"--rdzv-id={run_id}",
            ]
            # torchrun compares the endpoint with its host's name, which may have a loopback address
            added.append(f"--rdzv-conf=is_host={'true' if node == 0 else 'false'}")
            if "--local-addr" not in present:
                added.append(f"--local-addr={addresses[node]}")
    return (*command[:first_option], *added, *command[first_option:])


def is_torchrun(command: Sequence[str]) -> bool:
    return _find_options(command) is not None


class RootCauseFinder:
    """Finds the failed rank's exit status in torchrun's output: torchrun itself always exits with 1."""

    def __init__(self) -> None:
        self.status = 0
        """The status that a shell would report; 0 if torchrun has not named one."""
        self._expects_status = False

    def read(self, line: str) -> None:
        """Read the next line of the output of any node; the first named rank counts."""
        if "Root Cause" in line:
            self._expects_status = True
        match = _EXIT_STATUS.search(line) if self._expects_status and not self.status else None
        if match is not None:
            status = int(match[1])
            self.status = status if status >= 0 else 128 - status


def _find_options(command: Sequence[str]) -> int | None:
    """Return the index of the first word after torchrun, or None for other commands."""
    program = PurePath(command[0]).name
    if program == "torchrun":
        return 1
    if program.startswith("python") and _MODULE[1] in command:
        index = list(command).index(_MODULE[1])
        if command[index - 1] == _MODULE[0]:
            return index + 1
    return None


def _list_options(words: Sequence[str]) -> set[str]:
    """Return the names of the options before the script, spelled with hyphens as newer versions do."""
    names = set()
    remaining = iter(words)
    for word in remaining:
        if not word.startswith("-") or word == "--":
            break
        name, equals, _ = word.partition("=")
        name = name.replace("_", "-")
        names.add(name)
        if name in _OPTIONS_WITH_VALUE and not equals:
            next(remaining, None)
    return names
