"""What training takes of a GPU's memory: parameters, gradients, what the optimizer keeps, activations.

PyTorch's autocast keeps parameters and gradients in fp32, and a 16-bit copy of every weight from forward
until backward has used it.
"""

import numpy as np

from gpuyard.catalog import ModelProfile
from gpuyard.predict.table import Floats
from gpuyard.specs import Workload
from gpuyard.specs.workload import Optimizer

_FP32_BYTES = 4
_AUTOCAST_COPY_BYTES = 2
# A parameter, in the optimizer's own state: nothing; the momentum; two moments; the same in 8 bits, with one
# fp32 scale for 256 of each (bitsandbytes, block-wise quantization: arXiv:2110.02861).
STATE_BYTES: dict[Optimizer, float] = {
    "sgd": 0.0,
    "momentum": 4.0,
    "adam": 8.0,
    "adamw": 8.0,
    "adam-8bit": 2 * (1 + 4 / 256),
}


def model_bytes(workload: Workload, profile: ModelProfile) -> float:
    """All that is there whatever the batch. What is frozen has neither gradient nor state."""
    trained = profile.gradient_bytes / _FP32_BYTES
    weight = _FP32_BYTES + (_AUTOCAST_COPY_BYTES if workload.autocast else 0)
    return weight * profile.parameters + (_FP32_BYTES + STATE_BYTES[workload.optimizer]) * trained


def activation_bytes(workload: Workload, profile: ModelProfile, batch_per_gpu: Floats) -> Floats:
    """Of a batch, when backward begins."""
    return np.asarray(batch_per_gpu * profile.sample_bytes(autocast=workload.autocast))
