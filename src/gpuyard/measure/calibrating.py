"""A calibration with its provenance: which runs of which machines, when, and with what."""

from collections.abc import Sequence
from datetime import UTC, datetime

from gpuyard import __version__
from gpuyard.measure.calibration import CalibrationRows, hardware_of, is_of
from gpuyard.predict import Calibration
from gpuyard.predict.calibration.calibrate import Calibrated
from gpuyard.predict.calibration.document import HardwareCalibration


def as_document(calibrated: Sequence[Calibrated], rows: CalibrationRows) -> Calibration:
    """What is written."""
    return Calibration(
        created_at=datetime.now(UTC).isoformat(timespec="seconds"),
        gpuyard=__version__,
        hardware=tuple(_entry(one, rows) for one in calibrated),
    )


def _entry(one: Calibrated, rows: CalibrationRows) -> HardwareCalibration:
    used = [m for m in rows.measurements if hardware_of(m) == one.hardware]
    dates = sorted(m.created_at for m in used)
    return HardwareCalibration(
        device=one.hardware.device,
        processor=one.hardware.processor,
        count=one.hardware.count,
        cores_per_worker=one.hardware.cores_per_worker,
        hosts=tuple(dict.fromkeys(m.provenance.host for m in used)),
        runs=len(used),
        link_benches=sum(is_of(one.hardware, bench) for bench in rows.benches),
        first_run=dates[0],
        last_run=dates[-1],
        torch=tuple(dict.fromkeys(m.provenance.torch for m in used)),
        constants=one.constants,
        lines=one.lines,
        errors=one.errors,
    )
