"""The options of `gpuyard catalog`: each table offers the filters that apply to it."""

import inspect
import re
from collections.abc import Callable
from typing import Annotated, Any

import typer

from gpuyard.cli.catalog.view import View
from gpuyard.cli.completion import complete_clouds, complete_gpus
from gpuyard.cli.output import JsonOption

_MEMORY = re.compile(r"(\d+(?:\.\d+)?)\s*(?:Gi?B?)?", re.IGNORECASE)


def _parse_gigabytes(text: str) -> float:
    """Parse "80", "80 GB", or "80 GiB", which mean the same for GPU memory."""
    match = _MEMORY.fullmatch(text.strip())
    if match is None:
        raise typer.BadParameter(f"expected GB of memory, like 80 or '80 GB', got {text!r}")
    return float(match[1])


GpuFilter = Annotated[
    str | None,
    typer.Option(
        "--gpu",
        metavar="ID",
        autocompletion=complete_gpus,
        help="GPU of the rows, or a part of its name.",
    ),
]
CloudFilter = Annotated[
    str | None,
    typer.Option(
        "--cloud", metavar="NAME", autocompletion=complete_clouds, help="Cloud of the rows."
    ),
]
MemoryFilter = Annotated[
    float | None,
    typer.Option(
        "--min-memory",
        metavar="GB",
        parser=_parse_gigabytes,
        help="Minimum memory of the rows' GPUs.",
    ),
]
DescendingOption = Annotated[
    bool, typer.Option("--descending", help="Sort in reverse: largest first.")
]
_FILTERS = {"gpu": GpuFilter, "cloud": CloudFilter, "min_memory": MemoryFilter}


def name_argument(view: Callable[[], View]) -> Any:
    """Return the argument for the name of a row."""
    return Annotated[
        str | None,
        typer.Argument(
            metavar="NAME",
            help="Row to show with all columns.",
            autocompletion=lambda: list(view().table.ids()),
        ),
    ]


def sort_option(view: Callable[[], View], more: str = "") -> Any:
    """Return the option for the column to sort by."""
    return Annotated[
        str | None,
        typer.Option(
            "--sort",
            metavar="COLUMN",
            autocompletion=lambda: list(view().columns),
            help=f"Column to sort by, smallest first{more}.",
        ),
    ]


def declare_options(
    command: Callable[..., None], view: Callable[[], View], *filters: str, **own: Any
) -> Callable[..., None]:
    """Give a command the name of a row, the filters that apply to its table, its own options, and the order of rows."""
    options = {
        **own,
        **{name: _FILTERS[name] for name in filters},
        "sort": sort_option(view),
        "descending": DescendingOption,
        "json_output": JsonOption,
    }
    kind = inspect.Parameter
    parameters = [
        kind("name", kind.POSITIONAL_OR_KEYWORD, default=None, annotation=name_argument(view))
    ]
    for name, annotation in options.items():
        default = False if name in ("descending", "json_output") else None
        parameters.append(kind(name, kind.KEYWORD_ONLY, default=default, annotation=annotation))
    command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    command.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return command
