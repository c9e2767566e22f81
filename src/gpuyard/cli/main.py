"""Where the program starts. A lease's command should not wait for what other commands import, so `lease` is read here
if its line is plain; every other line, and whatever is wrong, goes to `app`."""

import sys

from gpuyard.errors import GpuyardError
from gpuyard.interpreter import forget_current_directory


def main() -> None:
    """Run the command line and exit with its status."""
    forget_current_directory()
    if sys.argv[1:2] == ["lease"]:
        from gpuyard.cli.share.lease_line import read_line, run_lease

        options = read_line(sys.argv[2:])
        if options is not None:
            try:
                sys.exit(run_lease(**options))
            except GpuyardError as error:
                from gpuyard.cli.app import fail

                fail(error)
    from gpuyard.cli.app import run

    run()
