"""`gpuyard retry`: submit a job again."""

import sys

from gpuyard.cli.jobs.status import HandleArgument
from gpuyard.cli.jobs.submit import print_caveats
from gpuyard.errors import UserMistake


def retry(handle: HandleArgument) -> None:
    """Submit an ended job again, unchanged, and print only its new handle on stdout.

    Example: gpuyard retry local://17
    """
    import time

    from gpuyard.jobs.engines.base import choose_engine, load_engine
    from gpuyard.jobs.find_job import find_handle

    old = find_handle(handle)
    status = load_engine(old.engine).status(old)
    if not status.final:
        raise UserMistake(
            f"{old} is {status.state} and would run twice; to start it over, first run: gpuyard cancel {old}"
        )
    engine = choose_engine(old.engine)
    request = engine.plan(engine.job(old).resubmit(time.time()))
    print_caveats(request.caveats)
    new = engine.submit(request)
    sys.stdout.write(f"{new}\n")
