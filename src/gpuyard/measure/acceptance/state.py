"""The state of an acceptance run on disk: a run that was killed continues with what is missing."""

import time
from pathlib import Path

from pydantic import Field, ValidationError

from gpuyard import files
from gpuyard.errors import GpuyardError
from gpuyard.measure.acceptance.records import (
    Attempt,
    Check,
    Inventory,
    PairRate,
    Phase,
    TrainingStep,
    WholeCluster,
)
from gpuyard.measure.record import RecordPart

_MAX_AGE_SECONDS = 24 * 3600.0  # a cluster changes; older figures are measured again


class AcceptanceState(RecordPart):
    """Everything that has been measured so far."""

    key: str
    started_at: float = Field(description="Unix time")
    elapsed_seconds: float = 0.0
    done: tuple[Phase, ...] = ()
    inventories: dict[str, Inventory] = Field(default_factory=dict)
    unreachable: dict[str, str] = Field(default_factory=dict)
    attempts: tuple[Attempt, ...] = ()
    rates: tuple[PairRate, ...] = ()
    whole: WholeCluster | None = None
    bisected: tuple[Check, ...] = ()
    training: TrainingStep | None = None
    failures: dict[Phase, str] = Field(default_factory=dict)
    notes: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()


class StateFile:
    """The file of one run, by its key."""

    def __init__(self, key: str) -> None:
        self.path: Path = files.home() / "acceptance" / f"{key[:16]}.json"
        self._key = key

    def read(self) -> AcceptanceState | None:
        """Return the state of an unfinished run; None if there is none, or if it is older than a day."""
        try:
            state = AcceptanceState.model_validate_json(files.read_text(self.path))
        except (GpuyardError, ValidationError):
            return None
        age = time.time() - state.started_at
        return state if state.key == self._key and 0 <= age < _MAX_AGE_SECONDS else None

    def write(self, state: AcceptanceState) -> None:
        files.create_parent(self.path)
        files.write_text(self.path, state.model_dump_json())

    def remove(self) -> None:
        self.path.unlink(missing_ok=True)
