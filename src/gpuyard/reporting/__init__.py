"""Reports the speed of a training loop. It runs inside a user's training, so it imports almost nothing.

    import gpuyard
    for batch in loader:
        ...
        gpuyard.step(samples=len(batch))

Outside of a gpuyard job this does nothing, unless GPUYARD_REPORT=stdout is set.
"""

from gpuyard.reporting.callbacks import huggingface_callback, lightning_callback, watch
from gpuyard.reporting.reporter import batches, checkpoint, exchange, step

__all__ = [
    "batches",
    "checkpoint",
    "exchange",
    "huggingface_callback",
    "lightning_callback",
    "step",
    "watch",
]
