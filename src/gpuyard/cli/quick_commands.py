"""The commands that people repeat all day: `gpuyard who`, `queue`, and `status`, which also run without typer."""

import sys
import time

from gpuyard.cli.show import show
from gpuyard.errors import NoResponse

_REFRESH_SECONDS = 2.0


def show_who(*, watch: bool = False, json_output: bool = False) -> None:
    """Show the GPUs with their leases once, or again and again with `watch`."""
    from gpuyard.api.share import read_share
    from gpuyard.report.answers.share.leases import who_answer
    from gpuyard.share.client import open_reader

    client = open_reader()
    if not watch:
        show(who_answer(read_share(client)), json_output=json_output)
        return
    client.patience_seconds = 0.0  # it asks again anyway
    while True:
        try:
            answer = who_answer(read_share(client))
        except NoResponse as error:
            sys.stderr.write(f"gpuyard: {error}\n")
        else:
            if not json_output and sys.stdout.isatty():
                sys.stdout.write("\x1b[H\x1b[2J")
            show(answer, json_output=json_output)
        sys.stdout.flush()
        time.sleep(_REFRESH_SECONDS)


def show_queue(
    *,
    all_: bool = False,
    last: int | None = None,
    everyone: bool = False,
    json_output: bool = False,
) -> None:
    """Show the open jobs, and the requested number of ended ones."""
    from gpuyard.api.queue import queue

    show(queue(all_=all_, last=last, everyone=everyone).answer, json_output=json_output)


def show_status(handle: str | None = None, *, json_output: bool = False) -> None:
    """Show everything that is known about a job; without a handle, list the open jobs."""
    from gpuyard.api.queue import queue, status

    result = queue() if handle is None else status(handle)
    show(result.answer, json_output=json_output)
