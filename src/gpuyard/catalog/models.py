"""Profiles of well-known models: the gradients of a training step in order, and the cost of one sample.

Models that train alike form families. `scripts/profile_models.py` writes the data files.
"""

import functools
import re
from collections import defaultdict

from pydantic import BaseModel, ConfigDict, Field, computed_field

from gpuyard.catalog.tables import Fact, FactTable, read_csv_rows

FP32_BYTES = 4

# the start of a name → the family whose layers use a GPU in the same way; the longest match counts
_FAMILIES = {
    "bert": "bert", "electra": "bert", "roberta": "bert", "distilbert": "bert",
    "gpt": "gpt", "opt": "gpt", "llama": "gpt", "transformer": "gpt",
    "vit": "vit", "deit": "vit", "beit": "vit", "cait": "vit", "crossvit": "vit", "pit": "vit", "xcit": "vit",
    "levit": "levit", "swin": "swin", "twins": "swin",
    "mixer": "mlp", "resmlp": "mlp", "gmlp": "mlp", "poolformer": "mlp", "convnext": "convnext",
    "vgg": "vgg", "repvgg": "vgg", "alexnet": "vgg", "squeezenet": "squeezenet",
    "densenet": "densenet", "inception": "inception", "googlenet": "inception", "hrnet": "hrnet",
    "xception": "depthwise", "mobilenet": "depthwise", "efficientnet": "depthwise", "mnasnet": "depthwise",
    "ghostnet": "depthwise", "shufflenet": "depthwise", "nasnet": "depthwise", "pnasnet": "depthwise",
    "regnet": "grouped", "resnext": "grouped", "nfnet": "grouped", "senet": "grouped", "res2net": "grouped",
    "resnet": "resnet", "seresnet": "resnet", "wide-resnet": "resnet", "dla": "resnet", "darknet": "resnet",
    "cspdarknet": "resnet", "cspresnet": "resnet", "gernet": "resnet", "selecsls": "resnet",
    "gnmt": "rnn", "ssd": "ssd",
}  # fmt: skip
TRANSFORMERS = frozenset({"bert", "gpt", "vit", "swin", "levit"})
_LIBRARIES = re.compile(r"^(timm|torchvision|tf|dm|legacy)-")


class LayerProfile(BaseModel):
    """A module with its own parameters."""

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)

    name: str = Field(min_length=1)
    parameters: int = Field(gt=0)
    forward_flops: int = Field(
        ge=0, description="per sample, including operations after this layer and before the next"
    )
    bytes_per_parameter: float = Field(default=FP32_BYTES, gt=0, description="2 in fp16 or bf16")

    @computed_field  # type: ignore[prop-decorator]
    @property
    def gradient_bytes(self) -> int:
        """The bytes of its gradients, which are as wide as its parameters."""
        return round(self.bytes_per_parameter * self.parameters)


class ModelProfile(Fact):
    """The compute and memory that training a model needs; a multiply-add is two FLOPs.

    Activations are counted twice: in fp32, which is also valid for tf32, and with PyTorch's autocast to fp16 or bf16.
    Attention is counted as a fused kernel.
    """

    name: str = Field(min_length=1)
    sample: str = Field(min_length=1)
    parameters: int = Field(gt=0)
    layers: tuple[LayerProfile, ...] = Field(
        description="in the order in which backward finishes their gradients, the last layer first"
    )
    forward_flops: int = Field(ge=0, description="per sample")
    cudnn_flops: int = Field(
        default=0,
        ge=0,
        description="FLOPs of convolutions and RNNs, which PyTorch lets cuDNN compute in tf32",
    )
    activation_bytes: int = Field(
        ge=0,
        description="memory per sample that autograd keeps for backward in fp32, without parameters",
    )
    activation_bytes_autocast: int = Field(
        ge=0,
        description="the same in mixed precision, where norms, residuals, and the loss stay in fp32",
    )
    largest_activation_bytes: int = Field(ge=0, description="largest activation tensor, in fp32")
    largest_activation_bytes_autocast: int = Field(ge=0)
    loss_gradient_bytes: int = Field(
        default=0, ge=0, description="memory that backward through the loss needs, in fp32"
    )
    loss_gradient_bytes_autocast: int = Field(default=0, ge=0)
    input_bytes: int = Field(ge=0, description="inputs of a sample, without its target")
    bytes_per_parameter: float = Field(
        default=FP32_BYTES, gt=0, description="mean width of a parameter: 2 for a module in bf16"
    )

    @computed_field  # type: ignore[prop-decorator]
    @property
    def gradient_bytes(self) -> int:
        """The bytes that a step exchanges, without layers that have no gradient (frozen, unused)."""
        return sum(layer.gradient_bytes for layer in self.layers)

    @property
    def parameter_bytes(self) -> float:
        return self.bytes_per_parameter * self.parameters

    @property
    def mostly_cudnn(self) -> bool:
        """True if convolutions and RNNs are most of its FLOPs."""
        return 2 * self.cudnn_flops > self.forward_flops

    def sample_bytes(self, *, autocast: bool) -> int:
        """Return the GPU memory per sample when backward begins.

        It is the activations plus the larger of two buffers: the gradients of the loss (a language model's logits, twice),
        or a gradient as large as the largest activation.
        """
        if autocast:
            return self.activation_bytes_autocast + max(
                self.largest_activation_bytes_autocast, self.loss_gradient_bytes_autocast
            )
        return self.activation_bytes + max(self.largest_activation_bytes, self.loss_gradient_bytes)


@functools.cache
def models() -> FactTable[ModelProfile]:
    """Return the models that gpuyard knows without running them."""
    layers: defaultdict[str, list[dict[str, str]]] = defaultdict(list)
    for row in sorted(read_csv_rows("model_layers.csv"), key=lambda row: int(row.pop("position"))):
        layers[row.pop("model")].append({"name": row.pop("layer"), **row})
    profiles = ({**row, "layers": layers[row["id"]]} for row in read_csv_rows("models.csv"))
    return FactTable("model", map(ModelProfile.model_validate, profiles))


def find_family(model: str) -> str | None:
    """Return the family of a catalog model or an importable `module:factory`, or None if its name is unknown."""
    name = model.rpartition(":")[2].lower().replace("_", "-").replace(".", "-")
    while match := _LIBRARIES.match(name):
        name = name[match.end() :]
    starts = [start for start in _FAMILIES if name.startswith(start)]
    return _FAMILIES[max(starts, key=len)] if starts else None
