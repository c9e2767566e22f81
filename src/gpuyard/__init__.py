"""gpuyard takes a machine-learning team from one GPU to a data center.

`import gpuyard as gy` gives a notebook everything that the command line does. The names below are imported when they are
first used, so that the import itself takes a few milliseconds.
"""

from gpuyard.version import __version__ as __version__

# a copy of typing's, because `python -m gpuyard` would look for `typing` in the current directory first
TYPE_CHECKING = False

if TYPE_CHECKING:
    from gpuyard.api.predict import predict as predict
    from gpuyard.reporting import step as step

_FUNCTIONS = {
    "predict": "gpuyard.api.predict",
    "step": "gpuyard.reporting",
}
"""The functions, and the modules that they are in."""


if not TYPE_CHECKING:  # with it, type checkers would accept any name

    def __getattr__(name: str) -> object:
        """Import a name of the API when it is first used (PEP 562)."""
        from importlib import import_module

        if name not in _FUNCTIONS:
            raise AttributeError(f"module 'gpuyard' has no attribute {name!r}")
        value: object = getattr(import_module(_FUNCTIONS[name]), name)
        globals()[name] = value  # later lookups skip this function
        return value


def __dir__() -> list[str]:
    return [*globals(), *_FUNCTIONS]
