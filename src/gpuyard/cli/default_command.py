"""Groups of commands with a default: `facility FILE` is short for `facility design FILE`."""

from typing import Any

from typer.core import TyperGroup


def run_by_default(name: str) -> type[TyperGroup]:
    """Return a class of groups that run the command `name` if the first argument is not a command."""

    class DefaultCommandGroup(TyperGroup):
        def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
            if args and args[0] not in {*self.commands, "-h", "--help"}:
                args = [name, *args]
            return super().parse_args(ctx, args)

    return DefaultCommandGroup
