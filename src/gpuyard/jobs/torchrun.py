"""Complete a torchrun command for the GPUs that a job got."""

from collections.abc import Sequence
from pathlib import PurePath

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
    nodes: int = 1,
    endpoint: str = "",
    run_id: str = "",
) -> tuple[str, ...]:
    """Add the number of ranks per node and the rendezvous, unless the command sets them itself.

    Other commands are returned unchanged. `endpoint` (HOST:PORT of the first node) is needed for several nodes.
    """
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
            added += ["--rdzv-backend=c10d", f"--rdzv-endpoint={endpoint}", f"--rdzv-id={run_id}"]
    return (*command[:first_option], *added, *command[first_option:])


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
