"""A run that is not credible: kept with the reason, never taken for a measurement."""

from typing import Literal

from pydantic import BaseModel, ConfigDict

from gpuyard.measure.training.measurement import Measurement


class Rejection(BaseModel):
    """What would have been stored, and why it was not."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    id: str
    key: str
    created_at: str
    kind: Literal["rejected"] = "rejected"
    reason: str
    measurement: Measurement

    @classmethod
    def of(cls, measurement: Measurement, reason: str) -> "Rejection":
        return cls(
            id=measurement.id,
            key=measurement.key,
            created_at=measurement.created_at,
            reason=reason,
            measurement=measurement,
        )
