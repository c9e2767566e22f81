"""The effect of `gpuyard who`."""

import sys
import time
from typing import TYPE_CHECKING, Any

from gpuyard.cli.show import show
from gpuyard.errors import NoResponse

if TYPE_CHECKING:
    from gpuyard.share.client import Client

_REFRESH_SECONDS = 2.0


def show_who(*, watch: bool = False, json_output: bool = False) -> None:
    """Show the GPUs with their leases once, or again and again with `watch`."""
    from gpuyard.report.answers.share.leases import who_answer
    from gpuyard.share.client import open_reader

    client = open_reader()
    if not watch:
        show(who_answer(read_document(client)), json_output=json_output)
        return
    client.patience_seconds = 0.0  # it asks again anyway
    while True:
        try:
            answer = who_answer(read_document(client))
        except NoResponse as error:
            sys.stderr.write(f"gpuyard: {error}\n")
        else:
            if not json_output and sys.stdout.isatty():
                sys.stdout.write("\x1b[H\x1b[2J")
            show(answer, json_output=json_output)
        sys.stdout.flush()
        time.sleep(_REFRESH_SECONDS)


def read_document(client: "Client") -> dict[str, Any]:
    """Return the document that `--json` prints."""
    from gpuyard.share.cgroup import Cgroups
    from gpuyard.share.clock import Clock
    from gpuyard.share.config import share_directory
    from gpuyard.share.ownership import find_conflict
    from gpuyard.share.views import read_gpus, who_document
    from gpuyard.share.violations import find_violations

    clock = Clock()
    readings = read_gpus(client)
    if client.config.scheduler == "slurm":
        from gpuyard.share.slurm.jobs import describe_jobs

        return describe_jobs(client.config, readings)
    state = client.state()
    violations = find_violations(
        state.held, readings, clock.boot(), client.config.rules.idle_grace_seconds
    )
    isolated = Cgroups(share_directory()).lease_ids()
    document = who_document(client.config, state, clock, readings, violations, isolated=isolated)
    if conflict := find_conflict(client.config):
        from gpuyard.share.slurm.jobs import describe_jobs

        others = describe_jobs(client.config, readings)
        for gpu, other in zip(document["gpus"], others["gpus"], strict=True):
            gpu["leases"] += other["leases"]
    return {**document, "conflict": conflict}
