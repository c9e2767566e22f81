"""Profiles of well-known models: which gradients a training step sends, in which order, and what
one sample costs. `scripts/profile_models.py` writes the data files."""

import functools
from collections import defaultdict

from pydantic import BaseModel, ConfigDict, Field, computed_field

from gpuyard.catalog.tables import Fact, Table, csv_rows

FP32_BYTES = 4


class LayerProfile(BaseModel):
    """A module with parameters of its own."""

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)

    name: str = Field(min_length=1)
    parameters: int = Field(gt=0)
    forward_flops: int = Field(
        ge=0, description="a sample, with what is computed after this layer and before the next"
    )

    @computed_field  # type: ignore[prop-decorator]
    @property
    def gradient_bytes(self) -> int:
        return FP32_BYTES * self.parameters


class ModelProfile(Fact):
    """What training one model asks of the hardware, in fp32; a multiply-add is two FLOPs."""

    name: str = Field(min_length=1)
    sample: str = Field(min_length=1)
    parameters: int = Field(gt=0)
    layers: tuple[LayerProfile, ...] = Field(
        description="in the order in which backward finishes their gradients, the last layer first"
    )
    forward_flops: int = Field(ge=0, description="a sample")
    activation_bytes: int = Field(
        ge=0, description="what autograd keeps of a sample for backward, parameters left out"
    )
    input_bytes: int = Field(ge=0, description="a sample's inputs, without its target")

    @computed_field  # type: ignore[prop-decorator]
    @property
    def gradient_bytes(self) -> int:
        """What a step exchanges; layers without a gradient (frozen, unused) have no part in it."""
        return sum(layer.gradient_bytes for layer in self.layers)


@functools.cache
def models() -> Table[ModelProfile]:
    """The models that gpuyard knows without running them."""
    layers: defaultdict[str, list[dict[str, str]]] = defaultdict(list)
    for row in sorted(csv_rows("model_layers.csv"), key=lambda row: int(row.pop("position"))):
        layers[row.pop("model")].append({"name": row.pop("layer"), **row})
    profiles = ({**row, "layers": layers[row["id"]]} for row in csv_rows("models.csv"))
    return Table("model", map(ModelProfile.model_validate, profiles))
