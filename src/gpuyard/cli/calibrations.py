"""`--calibration FILE|none`: which calibration `predict`, `plan` and `study` reckon with."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from gpuyard.predict import Calibration, ClusterPrediction

NONE = "none"

CalibrationOption = Annotated[
    str | None,
    typer.Option(
        metavar="FILE|none",
        help="Constants by gpuyard calibrate; without it the one in gpuyard's directory, if any.",
    ),
]


def chosen_calibration(option: str | None) -> "Calibration | None":
    """The named one, by default the user's own; None where there is none or none is wanted."""
    from gpuyard import paths
    from gpuyard.errors import UserMistake
    from gpuyard.predict import calibration_from_json

    if option == NONE:
        return None
    path = Path(option) if option is not None else paths.calibration_file()
    if option is None and not path.exists():
        return None
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise UserMistake(
            f"the calibration {path} can't be read: {error.strerror}; write one with "
            "gpuyard calibrate, or leave it out with --calibration none"
        ) from error
    except UnicodeDecodeError:
        text = ""  # the reader's own sentence says that it is no calibration
    return calibration_from_json(text, str(path))


def applies(result: "ClusterPrediction") -> bool:
    """Whether anything of a calibration entered a prediction."""
    from gpuyard.predict import CALIBRATED

    return any(CALIBRATED in said for said in (result.compute_basis, *_sources(result)))


def sentence(result: "ClusterPrediction", calibration: "Calibration | None") -> str:
    """The constants that a calibration brought; empty where there is no calibration."""
    if calibration is None:
        return ""
    measured = [x for x in dict.fromkeys(result.constants) if x.basis == "measured"]
    if measured:
        listed = "; ".join(f"{x.name} {x.value:.3g} {x.unit}" for x in measured)
        return f"Measured: {listed} ({measured[0].source})."
    if applies(result):
        return ""  # compute alone, and its own sentence says so
    known = "; ".join(entry.hardware.label for entry in calibration.hardware)
    return f"The calibration says nothing about this: it is of {known}."


def _sources(result: "ClusterPrediction") -> list[str]:
    return [constant.source for constant in result.constants]
