"""What the verbs share: reading lists of numbers, and where output goes."""

import sys
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperCommand

from gpuyard import units
from gpuyard.cli.output import STDOUT
from gpuyard.errors import UserMistake
from gpuyard.files import write_text

_MOST = 1_000_000_000

DryRunOption = Annotated[
    bool, typer.Option("--dry-run", help="Show what would be done, and do nothing.")
]

FreshOption = Annotated[
    bool, typer.Option("--fresh", help="Measure again even what the results store has.")
]


def _seconds(text: str | float) -> float:
    """A bare number is in seconds."""
    bare = str(text).replace(".", "", 1).isdigit()
    return units.parse_seconds(f"{text} s" if bare else text)


TimePerPointOption = Annotated[
    float,
    typer.Option(parser=_seconds, metavar="TIME", help="How long each point is timed, e.g. '3 s'."),
]


def _with_a_price(code: str) -> str:
    """A country or a region whose electricity price is known."""
    from gpuyard.catalog.electricity import electricity_prices

    return electricity_prices().get(code.upper()).id


CountryOption = Annotated[
    str | None,
    typer.Option(
        parser=_with_a_price,
        metavar="CODE",
        help="Electricity price of this country or region, e.g. DE or US-IL.",
    ),
]


_MAY_BE_BARE = ("--html", "--svg", "--csv")


class PrintsWithoutFile(TyperCommand):
    """A command whose `--html`, `--svg` and `--csv` print to stdout where no FILE follows them."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        whole: list[str] = []
        for arg, following in zip(args, [*args[1:], ""], strict=False):
            whole.append(arg)
            if arg in _MAY_BE_BARE and not _is_output_file(following):
                whole.append(str(STDOUT))
        return super().parse_args(ctx, whole)


def _is_output_file(text: str) -> bool:
    """And not what the command is about: a spec, or a name of the catalog."""
    named = ("." in text or "/" in text) and not text.startswith("--")
    return text == str(STDOUT) or (named and not text.endswith((".yaml", ".yml")))


def write_or_print(text: str, path: Path) -> None:
    """To the file, which is then named, or to stdout."""
    if path == STDOUT:
        sys.stdout.write(text)
        return
    from gpuyard.report.terminal import say

    write_text(path, text)
    say(f"written: {path}")


def parse_counts(text: str, what: str = "count") -> list[int]:
    """ "1,2,4" → [1, 2, 4]. Doubles are dropped, order is kept."""
    counts: list[int] = []
    for part in text.split(","):
        try:
            number = int(part)
        except ValueError:
            raise UserMistake(
                f"{what}: expected whole numbers like 1,2,4, got {part.strip()!r} in {text!r}"
            ) from None
        if not 1 <= number <= _MOST:
            raise UserMistake(f"{what}: must be 1 or more, up to {_MOST:,}, got {part.strip()}")
        if number not in counts:
            counts.append(number)
    return counts
