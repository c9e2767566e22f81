"""The entry point of the program.

A leased command should not wait for the imports of other commands, and commands that people repeat all day should answer
at once. So plain lines of these commands are parsed here; all others, and all mistakes, go to `app`.
"""

import sys

from gpuyard.interpreter import forget_current_directory

# the commands whose plain lines run without typer, and their functions
PLAIN_COMMANDS = {
    "who": "gpuyard.cli.quick_commands:show_who",
    "queue": "gpuyard.cli.quick_commands:show_queue",
    "status": "gpuyard.cli.quick_commands:show_status",
}


def main() -> None:
    """Run the command line and exit with its status."""
    forget_current_directory()
    if None in (sys.stdin, sys.stdout, sys.stderr):
        from gpuyard.cli.exits import open_closed_streams

        open_closed_streams()
    words = sys.argv[1:]
    try:
        _run(words)
    except BaseException as error:
        if not isinstance(error, SystemExit) or error.code:
            from gpuyard.cli.share.shell_refusal import refuse_shell

            refuse_shell(words, error)
        raise


def _run(words: list[str]) -> None:
    if words[:1] == ["lease"]:
        _run_plain_lease(words[1:])
    elif words[:1] and words[0] in PLAIN_COMMANDS:
        from gpuyard.cli.plain import parse_plain

        if (command := parse_plain(PLAIN_COMMANDS[words[0]], words[1:])) is not None:
            from gpuyard.cli.exits import run_and_exit

            run_and_exit(command)
            return
    from gpuyard.cli.app import run

    run()


def _run_plain_lease(words: list[str]) -> None:
    """Run a plain `lease` line and exit with its status; return if typer has to parse it."""
    from gpuyard.cli.share.lease_command import parse_plain, run_lease
    from gpuyard.errors import GpuyardError

    parsed = parse_plain(words)
    if parsed is None:
        return
    try:
        sys.exit(run_lease(*parsed))
    except GpuyardError as error:
        from gpuyard.cli.exits import fail

        fail(error)
    except OSError as error:
        from gpuyard.cli.exits import fail_on_system

        fail_on_system(error)
