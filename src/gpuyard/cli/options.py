"""The options that several commands share, such as those for the gradient exchange and the calibration."""

import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast, get_args

import typer
from typer.core import TyperCommand

from gpuyard.cli.output import STDOUT, create_flag
from gpuyard.errors import CodeNotAllowed, UnknownName, UserMistake, quote
from gpuyard.files import calibration_file, read_bytes, results_file, write_text
from gpuyard.printable import make_printable
from gpuyard.units import parse_seconds

if TYPE_CHECKING:
    from gpuyard.catalog import ModelProfile
    from gpuyard.measure.stored_figures import StoredRuns
    from gpuyard.predictor import Calibration
    from gpuyard.specs import ExchangeOptions, Precision, StrategyName, Workload

_MAX_COUNT = 1_000_000_000
_RANGE = re.compile(r"(\d{1,12})\s*(?:-|–|\.\.)\s*(\d{1,12})")
_MAX_LISTED = 1000  # as in specs
_MAX_CALIBRATION_BYTES = 1_000_000

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
        help="Country or region of the electricity price, e.g. DE or US-IL.",
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


def parse_counts(text: str, name: str = "count") -> list[int]:
    """ "1,2,4" → [1, 2, 4], "1-3" and "1..3" → [1, 2, 3]. Duplicates are dropped, and the order is kept."""
    parts = [number for part in text.split(",") for number in _expand_range(part.strip())]
    if len(parts) > _MAX_LISTED:
        raise UserMistake(f"{name}: must have at most {_MAX_LISTED:,} numbers, got {len(parts):,}")
    counts: list[int] = []
    for part in parts:
        try:
            number = int(part)
        except ValueError:
            context = f" in {quote(text)}" if len(parts) > 1 else ""
            raise UserMistake(
                f"{name}: expected whole numbers like 1,2,4 or 1-8, got {quote(part)}{context}"
            ) from None
        if not 1 <= number <= _MAX_COUNT:
            raise UserMistake(f"{name}: must be 1 or more, up to {_MAX_COUNT:,}, got {part}")
        if number not in counts:
            counts.append(number)
    return counts


def _expand_range(text: str) -> list[str]:
    """ "2-4" and "2..4" → 2, 3, 4; one number more than allowed stands for a longer range."""
    match = _RANGE.fullmatch(text)
    if match is None:
        return [text]
    first, last = int(match[1]), int(match[2])
    if first > last:
        raise UserMistake(f"the range {text!r} ends before it starts: write {last}-{first}")
    return [str(number) for number in range(first, min(last, first + _MAX_LISTED) + 1)]


NONE = "none"

CalibrationOption = Annotated[
    str | None,
    typer.Option(
        metavar="FILE|none",
        help="Calibration to use (default: your own, if you have one).",
    ),
]


def load_calibration(option: str | None) -> "Calibration | None":
    """Load the named calibration, by default the user's own; return None if there is none or for "none"."""
    from gpuyard.predictor import calibration_from_json

    if option == NONE:
        return None
    path = Path(option) if option is not None else calibration_file()
    if option is None and not path.exists():
        return None
    try:
        content = read_bytes(path, max_bytes=_MAX_CALIBRATION_BYTES)
    except UserMistake as mistake:
        raise UserMistake(
            f"the calibration {mistake}; create one with gpuyard calibrate, or leave it out with "
            "--calibration none"
        ) from None
    # for binary data, the parser reports that it is not a calibration
    return calibration_from_json(content.decode(errors="replace"), str(path))


ResultsOption = Annotated[
    str | None,
    typer.Option(
        metavar="FILE|none",
        help="Results store whose multi-GPU runs improve the prediction (default: your own).",
    ),
]


def load_results(option: str | None) -> "StoredRuns | None":
    """Load runs from the named store or export, by default the user's own; return None if there are none."""

    path = Path(option) if option is not None else results_file()
    if option == NONE or (option is None and not path.exists()):
        return None
    from gpuyard.measure.stored_figures import StoredRuns

    return StoredRuns.read(path)


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


def parse_exchange(
    compress: str | None,
    accumulate: int,
    bucket_mb: float | None,
    local_sgd: int,
    hierarchical: bool = False,
) -> "ExchangeOptions":
    """Combine the exchange options. Raise UserMistake for invalid or incompatible ones."""
    from pydantic import ValidationError

    from gpuyard.specs import ExchangeOptions
    from gpuyard.specs.spec_errors import explain_value

    try:
        return ExchangeOptions(
            compress=compress,
            accumulate=accumulate,
            bucket_mb=bucket_mb,
            local_sgd=local_sgd,
            hierarchical=hierarchical,
        )
    except ValidationError as invalid:
        mistake = invalid.errors()[0]
        if not mistake["loc"]:
            raise UserMistake(mistake["msg"].removeprefix("Value error, ")) from None
        option = f"--{str(mistake['loc'][0]).replace('_', '-')}"
        if option == "--compress":
            raise UserMistake(
                f"{option}: expected fp16, bf16, or powersgd:RANK such as powersgd:2, got {compress!r}"
            ) from None
        raise UserMistake(f"{option}: {explain_value(mistake)}") from None


def parse_strategy(name: str) -> "StrategyName":
    """Check the name of a strategy."""
    from gpuyard.specs import StrategyName

    if name not in get_args(StrategyName):
        raise UnknownName("strategy", name, get_args(StrategyName))
    return cast("StrategyName", name)


PRECISIONS = ("fp32", "tf32", "fp16", "bf16")
PYTORCHS_DEFAULT = (
    "the workload's, otherwise PyTorch's: tf32 for convolutions and RNNs on GPUs that have it, "
    "otherwise fp32"
)

PrecisionOption = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        help="Precision: fp32, tf32, or autocast with fp16 or bf16.",
        show_default=PYTORCHS_DEFAULT,
    ),
]
PrecisionsOption = Annotated[
    str | None,
    typer.Option(
        metavar="NAMES",
        help="Precisions to compare: fp32, tf32, fp16, bf16, e.g. tf32,bf16.",
        show_default=f"the plan's, {PYTORCHS_DEFAULT}",
    ),
]


def parse_precision(text: str) -> "Precision":
    """Check the name of a precision."""
    if text not in PRECISIONS:
        raise UnknownName("precision", text, PRECISIONS)
    return cast("Precision", text)


def parse_precisions(text: str) -> "Sequence[Precision]":
    """Parse "tf32,bf16" in order, each once."""
    return tuple(dict.fromkeys(parse_precision(part.strip()) for part in text.split(",")))


def apply_precision(
    workload: "Workload", profile: "ModelProfile", precision: str | None
) -> "Workload":
    """Return the workload in this precision, with its measurements scaled to it."""
    if precision is None:
        return workload
    from gpuyard.predictor.compute import change_workload_precision

    return change_workload_precision(workload, profile, parse_precision(precision))


def override_precision(workload: "Workload", precision: str | None) -> "Workload":
    """Return the workload in this precision for a measurement, without scaling."""
    if precision is None:
        return workload
    return workload.model_copy(update={"precision": parse_precision(precision)})


MAY_RUN_CODE = frozenset(
    {
        "bench relief",
        "bench sweep",
        "bench train",
        "catalog gpus",
        "deploy bench",
        "facility fabric",
        "facility storage",
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
