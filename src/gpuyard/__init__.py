"""gpuyard takes a machine-learning team from one GPU to a data center."""

from gpuyard.version import __version__ as __version__

# a copy of typing's, because `python -m gpuyard` would look for `typing` in the current directory first
TYPE_CHECKING = False

if TYPE_CHECKING:
    from gpuyard.reporting import step as step


def __getattr__(name: str) -> object:
    """Import `gpuyard.step` when a training loop first uses it, so that commands start without it."""
    if name != "step":
        raise AttributeError(f"module 'gpuyard' has no attribute {name!r}")
    from gpuyard.reporting import step

    globals()["step"] = step  # later lookups skip this function
    return step
