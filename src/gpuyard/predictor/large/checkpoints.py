"""The size of a large model's checkpoint: everything that a restart needs, of all GPUs together."""

from gpuyard.predictor.large.model import describe_model
from gpuyard.predictor.large.training import OPTIMIZER_BYTES, LargeTraining, trained_share

_FP32_BYTES, _HALF_BYTES = 4.0, 2.0


def count_checkpoint_bytes(training: LargeTraining, strategy: str) -> float:
    """Return the bytes of weights and optimizer; of LoRA, only those of its adapters.

    Both families keep the weights in fp32; Megatron-LM also saves their 16-bit copy.
    """
    model = describe_model(training.shape, training.sequence)
    moments = OPTIMIZER_BYTES[training.optimizer]
    copies = _HALF_BYTES if strategy == "megatron" and training.precision != "fp32" else 0.0
    trained = trained_share(training, model)
    return float(model.parameters) * trained * (_FP32_BYTES + moments + copies)
