"""The options that several commands share, such as those for the gradient exchange and the calibration."""

import sys
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperCommand

from gpuyard.choices import Precision
from gpuyard.cli.completion import complete_list, complete_places
from gpuyard.cli.output import STDOUT, create_flag
from gpuyard.errors import CodeNotAllowed
from gpuyard.files import write_text
from gpuyard.printable import make_printable
from gpuyard.units import parse_seconds

GpuIdsOption = Annotated[
    str | None,
    typer.Option("--gpu-ids", metavar="LIST", help="GPUs by index, like 0,1."),
]

DryRunOption = Annotated[
    bool, typer.Option("--dry-run", help="Show what would be done, and do nothing.")
]

FreshOption = Annotated[
    bool, typer.Option("--fresh", help="Measure again even if the results store has a result.")
]


def _parse_seconds(text: str | float) -> float:
    """Parse a duration; a bare number is in seconds."""
    bare = str(text).replace(".", "", 1).isdigit()
    return parse_seconds(f"{text} s" if bare else text, "3 s")


TimePerPointOption = Annotated[
    float,
    typer.Option(
        parser=_parse_seconds, metavar="TIME", help="Measuring time of each point, e.g. '3 s'."
    ),
]


def _parse_place(text: str) -> str:
    from gpuyard.catalog.electricity import find_place_code

    return find_place_code(text)


CountryOption = Annotated[
    str | None,
    typer.Option(
        parser=_parse_place,
        metavar="CODE",
        autocompletion=complete_places,
        help="Country or region of the electricity price, e.g. DE or US-IL.",
    ),
]


PowerCapOption = Annotated[
    str | None,
    typer.Option(
        metavar="POWER", help="Power limit of each GPU, e.g. 300W.", show_default="its rated power"
    ),
]


_OUTPUT_OPTIONS = ("--html", "--svg", "--csv")


class PrintsWithoutFile(TyperCommand):
    """A command whose `--html`, `--svg`, and `--csv` print to stdout if no FILE follows them."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        completed: list[str] = []
        for arg, following in zip(args, [*args[1:], ""], strict=False):
            completed.append(arg)
            if arg in _OUTPUT_OPTIONS and not _is_output_file(following):
                completed.append(str(STDOUT))
        return super().parse_args(ctx, completed)


def _is_output_file(text: str) -> bool:
    """Return whether the text is a file to write, and not a spec, a catalog name, or another option."""
    is_path = ("." in text or "/" in text) and not text.startswith("--")
    return text == str(STDOUT) or (is_path and not text.endswith((".yaml", ".yml")))


def write_or_print(text: str, path: Path) -> None:
    """Write to the file and report its name, or print to stdout."""
    if path == STDOUT:
        sys.stdout.write(text)
        return
    from gpuyard.report.terminal import print_line

    write_text(path, text)
    print_line(f"Wrote {path}.")


CalibrationOption = Annotated[
    str | None,
    typer.Option(
        metavar="FILE|none",
        help="Calibration to use (default: your own, if you have one).",
    ),
]


ResultsOption = Annotated[
    str | None,
    typer.Option(
        metavar="FILE|none",
        help="Results store whose multi-GPU runs improve the prediction (default: your own).",
    ),
]


CompressOption = Annotated[
    str | None,
    typer.Option(help="Gradient compression: fp16, bf16, or powersgd:RANK.", metavar="HOW"),
]
AccumulateOption = Annotated[
    int,
    typer.Option(help="Backward passes per exchange (gradient accumulation).", metavar="N"),
]
BucketOption = Annotated[
    float | None, typer.Option(help="Size of ddp's buckets or Horovod's fusion buffer in MiB.")
]
LocalSgdOption = Annotated[
    int,
    typer.Option(help="Local updates between two averagings (local SGD).", metavar="N"),
]
HierarchicalOption = Annotated[
    bool,
    typer.Option("--hierarchical", help="All-reduce inside each machine first, if faster."),
]


PYTORCHS_DEFAULT = (
    "the workload's, otherwise PyTorch's: tf32 for convolutions and RNNs on GPUs that have it, "
    "otherwise fp32"
)

PrecisionOption = Annotated[
    Precision | None,
    typer.Option(
        help="Precision: fp32, tf32, or autocast with fp16 or bf16.",
        show_default=PYTORCHS_DEFAULT,
    ),
]
PrecisionsOption = Annotated[
    str | None,
    typer.Option(
        metavar="NAME,…",
        help="Precisions to compare: fp32, tf32, fp16, bf16, e.g. tf32,bf16.",
        autocompletion=complete_list(Precision),
        show_default=f"the plan's, {PYTORCHS_DEFAULT}",
    ),
]


MAY_RUN_CODE = frozenset(
    {
        "bench relief",
        "bench sweep",
        "bench train",
        "catalog gpus",
        "deploy bench",
        "facility fabric",
        "facility storage",
        "goodput",
        "plan",
        "playbook",
        "predict",
        "study",
        "topo compare",
        "train",
    }
)
"""The commands that read workloads and run the code that these name."""


def add_allow_code_option(command: Any, path: str) -> None:
    """Add `--allow-code` to this command and its subcommands if they may run a user's code."""
    if path in MAY_RUN_CODE:
        help = "Run code that a spec outside this project names."
        command.params.append(create_flag("--allow-code", help, _allow))
    for name, subcommand in getattr(command, "commands", {}).items():
        add_allow_code_option(subcommand, f"{path} {name}")


def confirm_code(error: CodeNotAllowed) -> bool:
    """Ask at a terminal whether the code may run, and allow it from then on if the user agrees."""
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        return False
    sys.stderr.write(make_printable(f"gpuyard: {error.description}.\nRun it? [y/N] "))
    sys.stderr.flush()
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        return False
    from gpuyard.workloads.code_trust import allow_code

    allow_code(error.file)
    return True


def _allow(requested: bool) -> None:
    if requested:
        from gpuyard.workloads.code_trust import allow_code

        allow_code()
