"""Profiles of well-known models: which gradients a training step sends, in which order, and what
one sample costs. `scripts/profile_models.py` writes the data files."""

import functools
from collections import defaultdict

from pydantic import BaseModel, ConfigDict, Field, computed_field

from gpuyard.catalog.tables import Fact, FactTable, csv_rows

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
    """What training one model asks of the hardware; a multiply-add is two FLOPs.

    Of activations there are two counts: in fp32, which tf32 keeps too, and under PyTorch's autocast to
    fp16 or bf16. Attention is that of a fused kernel.
    """

    name: str = Field(min_length=1)
    sample: str = Field(min_length=1)
    parameters: int = Field(gt=0)
    layers: tuple[LayerProfile, ...] = Field(
        description="in the order in which backward finishes their gradients, the last layer first"
    )
    forward_flops: int = Field(ge=0, description="a sample")
    cudnn_flops: int = Field(
        default=0,
        ge=0,
        description="of the FLOPs those of convolutions and RNNs, which PyTorch lets cuDNN compute in tf32",
    )
    activation_bytes: int = Field(
        ge=0,
        description="what autograd keeps of a sample for backward in fp32, parameters left out",
    )
    activation_bytes_autocast: int = Field(
        ge=0, description="the same in mixed precision: norms, residuals and the loss stay in fp32"
    )
    largest_activation_bytes: int = Field(ge=0, description="of them the largest tensor, in fp32")
    largest_activation_bytes_autocast: int = Field(ge=0)
    loss_gradient_bytes: int = Field(
        default=0, ge=0, description="what backward through the loss needs at once, in fp32"
    )
    loss_gradient_bytes_autocast: int = Field(default=0, ge=0)
    input_bytes: int = Field(ge=0, description="a sample's inputs, without its target")

    @computed_field  # type: ignore[prop-decorator]
    @property
    def gradient_bytes(self) -> int:
        """What a step exchanges; layers without a gradient (frozen, unused) have no part in it."""
        return sum(layer.gradient_bytes for layer in self.layers)

    @property
    def mostly_cudnn(self) -> bool:
        """Whether most of what it computes are convolutions and RNNs."""
        return 2 * self.cudnn_flops > self.forward_flops

    def sample_bytes(self, *, autocast: bool) -> int:
        """What a sample takes of a GPU's memory when backward begins: all that is kept of it, and the gradients of
        the loss (a language model's logits, twice) or one as large as the largest of what is kept."""
        if autocast:
            return self.activation_bytes_autocast + max(
                self.largest_activation_bytes_autocast, self.loss_gradient_bytes_autocast
            )
        return self.activation_bytes + max(self.largest_activation_bytes, self.loss_gradient_bytes)


@functools.cache
def models() -> FactTable[ModelProfile]:
    """The models that gpuyard knows without running them."""
    layers: defaultdict[str, list[dict[str, str]]] = defaultdict(list)
    for row in sorted(csv_rows("model_layers.csv"), key=lambda row: int(row.pop("position"))):
        layers[row.pop("model")].append({"name": row.pop("layer"), **row})
    profiles = ({**row, "layers": layers[row["id"]]} for row in csv_rows("models.csv"))
    return FactTable("model", map(ModelProfile.model_validate, profiles))
