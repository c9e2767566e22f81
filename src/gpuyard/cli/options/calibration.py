"""`--calibration FILE|none`: which calibration `predict`, `plan` and `study` reckon with."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from gpuyard.predict import Calibration

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
