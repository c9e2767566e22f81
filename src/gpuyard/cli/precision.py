"""`--precision`: what a workload trains in, whatever its file says."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, cast

import typer

from gpuyard.errors import UnknownName

if TYPE_CHECKING:
    from gpuyard.catalog import ModelProfile
    from gpuyard.specs import Precision, Workload

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
    from gpuyard.predict.precision import at_precision

    return at_precision(workload, profile, parse_precision(precision))
