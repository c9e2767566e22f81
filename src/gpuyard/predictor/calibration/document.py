"""The calibration file: constants and compute lines by hardware, and the runs they were fitted to."""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from gpuyard.errors import UserMistake
from gpuyard.files import too_many_values
from gpuyard.predictor.calibration.rows import Hardware, LineKey
from gpuyard.specs import Precision, StrategyName

VERSION = 1
ConstantName = Literal[
    "link_inside",
    "hop_latency",
    "collective_launch",
    "overlap",
    "backward_share",
    "step_variation",
]
_Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
_NotNegative = Annotated[float, Field(ge=0, allow_inf_nan=False)]


class _Record(BaseModel):
    model_config = ConfigDict(
        frozen=True, extra="ignore", defer_build=True
    )  # a newer gpuyard may add keys


class CalibratedConstant(_Record):
    """A constant that the runs determine."""

    name: ConstantName
    value: _NotNegative
    default: _NotNegative
    unit: str
    doubt: Annotated[float, Field(ge=0, description="σ after the fit over σ before it")]


class CalibratedLine(_Record):
    """A workload's compute time on this hardware: fixed + batch · per sample."""

    workload: str
    model: str
    precision: Precision
    gradient_bytes: int
    fixed_seconds: _NotNegative
    seconds_per_sample: _Positive
    fixed_basis: Literal["measured", "assumed"]
    runs: int
    smallest_batch: int
    largest_batch: int

    @property
    def key(self) -> LineKey:
        return LineKey(self.model, self.precision, self.gradient_bytes)


class CalibratedPoint(_Record):
    """A measured multi-GPU figure, with which other numbers of GPUs are predicted."""

    model: str
    precision: Precision
    gradient_bytes: int
    strategy: StrategyName
    workers: Annotated[int, Field(gt=1)]
    batch_per_worker: Annotated[int, Field(gt=0)]
    samples_per_second: _Positive
    runs: int


class CheckedErrors(_Record):
    """Mean and median relative errors of samples/s on held-out configurations."""

    configurations: int
    mean_before: float
    mean_after: float
    median_before: float
    median_after: float
    mean_fitted: Annotated[float, Field(description="of the runs that the fit has seen")]


class HardwareCalibration(_Record):
    """The calibration of one kind of hardware."""

    device: Literal["cpu", "cuda"]
    processor: str
    count: int
    cores_per_worker: int | None
    hosts: tuple[str, ...]
    runs: int
    link_benches: int
    first_run: str
    last_run: str
    torch: tuple[str, ...]
    constants: tuple[CalibratedConstant, ...]
    lines: tuple[CalibratedLine, ...]
    points: tuple[CalibratedPoint, ...] = ()
    errors: CheckedErrors

    @property
    def hardware(self) -> Hardware:
        return Hardware(self.device, self.processor, self.count, self.cores_per_worker)


class Calibration(_Record):
    """The document that `gpuyard calibrate` writes and that `predict`, `plan`, and `study` read."""

    kind: Literal["gpuyard-calibration"] = "gpuyard-calibration"
    version: int = VERSION
    created_at: Annotated[str, Field(description="UTC, ISO 8601")]
    gpuyard: str
    hardware: tuple[HardwareCalibration, ...]

    @property
    def runs(self) -> int:
        return sum(entry.runs for entry in self.hardware)

    def find_entry(self, hardware: Hardware) -> HardwareCalibration | None:
        return next((entry for entry in self.hardware if entry.hardware == hardware), None)

    def as_json(self) -> dict[str, Any]:
        return self.model_dump(mode="json")


def calibration_from_json(text: str, name: str) -> Calibration:
    """Parse a calibration file; `name` is the file name for error messages."""
    try:
        if (reason := too_many_values(text)) is not None:
            raise ValueError(reason)
        calibration = Calibration.model_validate_json(text)
    except ValueError as invalid:
        raise UserMistake(
            f"{name} is not a calibration ({_describe_first_error(invalid)}); write a "
            "new one with gpuyard calibrate, remove it with gpuyard calibrate --remove, or ignore "
            "it with --calibration=none"
        ) from None
    if calibration.version > VERSION:
        raise UserMistake(
            f"{name} was written by a newer gpuyard (calibration version {calibration.version}; this one "
            f"supports {VERSION}); upgrade gpuyard, or ignore the file with --calibration=none"
        )
    return calibration


def _describe_first_error(invalid: ValueError) -> str:
    if not isinstance(invalid, ValidationError):
        return str(invalid)
    first = invalid.errors(include_url=False, include_input=False)[0]
    return ": ".join(filter(None, (".".join(map(str, first["loc"])), first["msg"])))
