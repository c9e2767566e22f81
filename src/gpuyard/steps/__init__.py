"""What a training loop says of its own speed. It runs inside a user's training, so it imports next to nothing.

    import gpuyard
    for batch in loader:
        ...
        gpuyard.step(samples=len(batch))

Outside of a gpuyard job that does nothing, unless GPUYARD_REPORT=stdout asks for it.
"""

from gpuyard.steps.callbacks import huggingface_callback, lightning_callback, watch
from gpuyard.steps.reporter import step

__all__ = ["huggingface_callback", "lightning_callback", "step", "watch"]
