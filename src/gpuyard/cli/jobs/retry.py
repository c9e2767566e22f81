"""`gpuyard retry`: submit a job again."""

import sys

from gpuyard.cli.jobs.status import HandleArgument
from gpuyard.errors import UserMistake


def retry(handle: HandleArgument) -> None:
    """Submit a job that has ended again, unchanged, and print only its new handle on stdout.

    Example: gpuyard retry local://17
    """
    import time

    from gpuyard.jobs.engines.base import choose_engine, engine
    from gpuyard.jobs.job import Handle

    named = Handle.parse(handle)
    before = engine(named.engine).status(named)
    if not before.final:
        raise UserMistake(
            f"{named} is {before.state}, and would run twice; to start it over, first: gpuyard cancel {named}"
        )
    chosen = choose_engine(named.engine)
    again = chosen.submit(chosen.plan(chosen.job(named).again(time.time())))
    sys.stdout.write(f"{again}\n")
