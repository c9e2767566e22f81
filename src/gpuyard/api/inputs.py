"""Inputs of the API as people write them: lists of counts, names of precisions and strategies, files or objects."""

import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, cast, get_args

from gpuyard.errors import UnknownName, UserMistake, quote
from gpuyard.files import calibration_file, read_bytes, results_file
from gpuyard.units import parse_watts

if TYPE_CHECKING:
    from gpuyard.catalog import ModelProfile
    from gpuyard.measure.stored_figures import StoredRuns
    from gpuyard.predictor.calibration.document import Calibration
    from gpuyard.specs import Cluster, ExchangeOptions, Precision, StrategyName, Workload

_MAX_COUNT = 1_000_000_000
_RANGE = re.compile(r"(\d{1,12})\s*(?:-|–|\.\.)\s*(\d{1,12})")
_MAX_LISTED = 1000  # as in specs
_MAX_CALIBRATION_BYTES = 1_000_000
NONE = "none"

PRECISIONS = ("fp32", "tf32", "fp16", "bf16")


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


def load_calibration(option: str | None) -> "Calibration | None":
    """Load the named calibration, by default the user's own; return None if there is none or for "none"."""
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
            "--calibration=none"
        ) from None
    from gpuyard.predictor.calibration.document import calibration_from_json

    # for binary data, the parser reports that it is not a calibration
    return calibration_from_json(content.decode(errors="replace"), str(path))


def load_results(option: str | None) -> "StoredRuns | None":
    """Load runs from the named store or export, by default the user's own; return None if there are none."""

    path = Path(option) if option is not None else results_file()
    if option == NONE or (option is None and not path.exists()):
        return None
    from gpuyard.measure.stored_figures import StoredRuns

    return StoredRuns.read(path)


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


def read_profiled_workload(
    workload: "str | Path | Workload", precision: str | None
) -> "tuple[Workload, ModelProfile]":
    """Return the workload in this precision, and its profile."""
    from gpuyard.workloads import profile_model

    if precision is not None:
        parse_precision(precision)  # before the model is profiled
    spec = read_workload(workload)
    profile = profile_model(spec)
    return apply_precision(spec, profile, precision), profile


def override_precision(workload: "Workload", precision: str | None) -> "Workload":
    """Return the workload in this precision for a measurement, without scaling."""
    if precision is None:
        return workload
    return workload.model_copy(update={"precision": parse_precision(precision)})


def read_quantity(value: str | float, parse: Callable[[str], float]) -> float:
    """Return a number as it is, and parse text with a unit."""
    return parse(value) if isinstance(value, str) else value


def read_workload(workload: "str | Path | Workload") -> "Workload":
    """Return the workload of a file, of a catalog model, or as it is."""
    if not isinstance(workload, str | Path):
        return workload
    from gpuyard.catalog.specfiles import read_workload as read

    return read(str(workload))


def read_cluster(cluster: "str | Path | Cluster") -> "Cluster":
    """Return the cluster of a file, of a short form like `8xh100`, or as it is."""
    if not isinstance(cluster, str | Path):
        return cluster
    from gpuyard.hardware.clusters import read_cluster as read

    return read(str(cluster))


def apply_power_cap(cluster: "Cluster", power_cap: str | float | None) -> "Cluster":
    """Return the cluster with another power cap of its GPUs, checked against published curves."""
    if power_cap is not None:
        watts = parse_watts(power_cap) if isinstance(power_cap, str) else float(power_cap)
        cluster = cluster.model_copy(update={"power_cap": watts})
    if cluster.power_cap is not None:
        from gpuyard.hardware.clusters import resolve_machine
        from gpuyard.predictor.power import cap_power

        cap_power(resolve_machine(cluster)[0], cluster.power_cap)  # refuses one that is too low
    return cluster


def read_counts(counts: str | int | Sequence[int], name: str) -> list[int]:
    """Return numbers like 8, [1, 2, 4], "1,2,4", or "1-8" as a list."""
    text = counts if isinstance(counts, str) else None
    if text is None:
        numbers = [counts] if isinstance(counts, int) else counts
        text = ",".join(str(number) for number in cast("Sequence[int]", numbers))
    return parse_counts(text, name)
