"""The options that several commands share, those about the exchange of gradients and the calibration among them."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast, get_args

import typer
from typer.core import TyperCommand

from gpuyard import units
from gpuyard.cli.output import STDOUT, added_flag
from gpuyard.errors import CodeNotAllowed, UnknownName, UserMistake, quoted
from gpuyard.files import read_bytes, write_text
from gpuyard.printable import printable

if TYPE_CHECKING:
    from gpuyard.catalog import ModelProfile
    from gpuyard.measure.stored_figures import StoredRuns
    from gpuyard.predict import Calibration
    from gpuyard.specs import ExchangeOptions, Precision, StrategyName, Workload

_MOST = 1_000_000_000
_MOST_LISTED = 1000  # as in specs
_MOST_CALIBRATION_BYTES = 1_000_000

DryRunOption = Annotated[
    bool, typer.Option("--dry-run", help="Show what would be done, and do nothing.")
]

FreshOption = Annotated[
    bool, typer.Option("--fresh", help="Measure again even what the results store has.")
]


def _seconds(text: str | float) -> float:
    """A bare number is in seconds."""
    bare = str(text).replace(".", "", 1).isdigit()
    return units.parse_seconds(f"{text} s" if bare else text, "3 s")


TimePerPointOption = Annotated[
    float,
    typer.Option(parser=_seconds, metavar="TIME", help="How long each point is timed, e.g. '3 s'."),
]


def _with_a_price(text: str) -> str:
    from gpuyard.catalog.electricity import place_code

    return place_code(text)


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
    parts = [part.strip() for part in text.split(",")]
    if len(parts) > _MOST_LISTED:
        raise UserMistake(f"{what}: takes at most {_MOST_LISTED:,} numbers, got {len(parts):,}")
    counts: list[int] = []
    for part in parts:
        try:
            number = int(part)
        except ValueError:
            where = f" in {quoted(text)}" if len(parts) > 1 else ""
            raise UserMistake(
                f"{what}: expected whole numbers like 1,2,4, got {quoted(part)}{where}"
            ) from None
        if not 1 <= number <= _MOST:
            raise UserMistake(f"{what}: must be 1 or more, up to {_MOST:,}, got {part}")
        if number not in counts:
            counts.append(number)
    return counts


NONE = "none"

CalibrationOption = Annotated[
    str | None,
    typer.Option(
        metavar="FILE|none",
        help="Calibration to use (default: your own, if there is one).",
    ),
]


def chosen_calibration(option: str | None) -> "Calibration | None":
    """The named one, by default the user's own; None where there is none or none is wanted."""
    from gpuyard import files
    from gpuyard.predict import calibration_from_json

    if option == NONE:
        return None
    path = Path(option) if option is not None else files.calibration_file()
    if option is None and not path.exists():
        return None
    try:
        content = read_bytes(path, most_bytes=_MOST_CALIBRATION_BYTES)
    except UserMistake as mistake:
        raise UserMistake(
            f"the calibration {mistake}; write one with gpuyard calibrate, or leave it out with "
            "--calibration none"
        ) from None
    # the reader's own sentence says of what is no text that it is no calibration
    return calibration_from_json(content.decode(errors="replace"), str(path))


ResultsOption = Annotated[
    str | None,
    typer.Option(
        metavar="FILE|none",
        help="Results whose runs of several GPUs count (default: your own store).",
    ),
]


def chosen_results(option: str | None) -> "StoredRuns | None":
    """Those of the named store or export, by default of the user's own; None where there is none or none is wanted."""
    from gpuyard import files

    path = Path(option) if option is not None else files.results_file()
    if option == NONE or (option is None and not path.exists()):
        return None
    from gpuyard.measure.stored_figures import StoredRuns

    return StoredRuns.read(path)


CompressOption = Annotated[
    str | None,
    typer.Option(help="Send gradients as fp16, bf16 or powersgd:RANK.", metavar="HOW"),
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
    typer.Option(help="Local updates between two averagings.", metavar="N"),
]
HierarchicalOption = Annotated[
    bool,
    typer.Option("--hierarchical", help="All-reduce inside each machine first, where faster."),
]


def parse_exchange(
    compress: str | None,
    accumulate: int,
    bucket_mb: float | None,
    local_sgd: int,
    hierarchical: bool = False,
) -> "ExchangeOptions":
    """All of them as one value; raises what can't be done, or not together."""
    from pydantic import ValidationError

    from gpuyard.specs import ExchangeOptions
    from gpuyard.specs.mistakes import expected_and_got

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
                f"{option}: expected fp16, bf16 or powersgd:RANK such as powersgd:2, got {compress!r}"
            ) from None
        raise UserMistake(f"{option}: {expected_and_got(mistake)}") from None


def parse_strategy(name: str) -> "StrategyName":
    """The strategy of this name."""
    from gpuyard.specs import StrategyName

    if name not in get_args(StrategyName):
        raise UnknownName("strategy", name, get_args(StrategyName))
    return cast("StrategyName", name)


PRECISIONS = ("fp32", "tf32", "fp16", "bf16")
PYTORCHS_DEFAULT = (
    "the workload's, else PyTorch's: tf32 for convolutions and RNNs on GPUs that have it, else fp32"
)

PrecisionOption = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        help="fp32, tf32, or mixed precision by autocast: fp16, bf16.",
        show_default=PYTORCHS_DEFAULT,
    ),
]
PrecisionsOption = Annotated[
    str | None,
    typer.Option(
        metavar="NAMES",
        help="Train in fp32, tf32, fp16 or bf16; several are searched, e.g. tf32,bf16.",
        show_default=f"the plan's, {PYTORCHS_DEFAULT}",
    ),
]


def parse_precision(text: str) -> "Precision":
    """One of those that there are."""
    if text not in PRECISIONS:
        raise UnknownName("precision", text, PRECISIONS)
    return cast("Precision", text)


def parse_precisions(text: str) -> "Sequence[Precision]":
    """ "tf32,bf16" in its order, each once."""
    return tuple(dict.fromkeys(parse_precision(part.strip()) for part in text.split(",")))


def trained_in_asked(
    workload: "Workload", profile: "ModelProfile", precision: str | None
) -> "Workload":
    """The workload in the precision of the option, if there was one."""
    if precision is None:
        return workload
    from gpuyard.predict.compute import at_precision

    return at_precision(workload, profile, parse_precision(precision))


def measured_in_asked(workload: "Workload", precision: str | None) -> "Workload":
    """The workload in the precision of the option, where it is run and nothing is scaled."""
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
"""The commands that read workloads and run what these name."""


def add_allow_code_option(command: Any, path: str) -> None:
    """To this command, if it may run a user's code, and to those below it."""
    if path in MAY_RUN_CODE:
        help = "Run code that a spec outside this project names."
        command.params.append(added_flag("--allow-code", help, _allow))
    for name, below in getattr(command, "commands", {}).items():
        add_allow_code_option(below, f"{path} {name}")


def agreed(found: CodeNotAllowed) -> bool:
    """Whether somebody at a terminal lets it run; from then on it is allowed."""
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        return False
    sys.stderr.write(printable(f"gpuyard: {found.found}.\nRun it? [y/N] "))
    sys.stderr.flush()
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        return False
    from gpuyard.workloads.own_code import allow_code

    allow_code(found.file)
    return True


def _allow(wanted: bool) -> None:
    if wanted:
        from gpuyard.workloads.own_code import allow_code

        allow_code()
