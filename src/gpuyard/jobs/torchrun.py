"""The line that starts a job's ranks: what a torchrun command leaves open is filled in for the GPUs that the job got."""

from collections.abc import Sequence
from pathlib import PurePath

_MODULE = ("-m", "torch.distributed.run")
_VALUES = frozenset(
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
"""Options of torchrun that take a value as the next word."""
_MEETING = ("--standalone", "--rdzv-endpoint", "--rdzv-backend", "--master-addr", "--node-rank")


def torchrun_line(
    command: Sequence[str],
    *,
    gpus_per_node: int,
    nodes: int = 1,
    endpoint: str = "",
    run_id: str = "",
) -> tuple[str, ...]:
    """The same command with what it does not say itself: how many ranks a node has, and where nodes meet.

    Any other command is left as it is. `endpoint` (HOST:PORT of the first node) is needed for several nodes.
    """
    first = _options_from(command)
    if first is None:
        return tuple(command)
    said = _said(command[first:])
    added = []
    if nodes > 1 and "--nnodes" not in said:
        added.append(f"--nnodes={nodes}")
    if "--nproc-per-node" not in said:
        added.append(f"--nproc-per-node={gpus_per_node}")
    if not said.intersection(_MEETING):
        if nodes == 1:
            added.append("--standalone")
        else:
            added += ["--rdzv-backend=c10d", f"--rdzv-endpoint={endpoint}", f"--rdzv-id={run_id}"]
    return (*command[:first], *added, *command[first:])


def _options_from(command: Sequence[str]) -> int | None:
    """The index of the first word after torchrun itself."""
    program = PurePath(command[0]).name
    if program == "torchrun":
        return 1
    if program.startswith("python") and _MODULE[1] in command:
        at = list(command).index(_MODULE[1])
        if command[at - 1] == _MODULE[0]:
            return at + 1
    return None


def _said(words: Sequence[str]) -> set[str]:
    """Names of the options before the script, in torchrun's newer spelling."""
    said = set()
    left = iter(words)
    for word in left:
        if not word.startswith("-") or word == "--":
            break
        name, equals, _ = word.partition("=")
        name = name.replace("_", "-")
        said.add(name)
        if name in _VALUES and not equals:
            next(left, None)
    return said
