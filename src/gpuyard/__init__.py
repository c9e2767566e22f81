"""gpuyard takes a machine-learning team from one GPU to a data centre."""

TYPE_CHECKING = (
    False  # of `typing`, which `python -m gpuyard` would look for in the current directory first
)

if TYPE_CHECKING:
    from gpuyard.steps import step as step

__version__ = "0.1.0"


def __getattr__(name: str) -> object:
    """`gpuyard.step` is there for a user's training loop; every other command starts without it."""
    if name != "step":
        raise AttributeError(f"module 'gpuyard' has no attribute {name!r}")
    from gpuyard.steps import step

    globals()["step"] = step  # the next call finds it as it is
    return step
