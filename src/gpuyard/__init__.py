"""gpuyard takes a machine-learning team from one GPU to a data center.

`import gpuyard as gy` gives a notebook everything that the command line does. The names below are imported when they are
first used, so that the import itself takes a few milliseconds.
"""

from gpuyard.version import __version__ as __version__

# a copy of typing's, because `python -m gpuyard` would look for `typing` in the current directory first
TYPE_CHECKING = False

if TYPE_CHECKING:
    from gpuyard import catalog as catalog
    from gpuyard.api import results as results
    from gpuyard.api.accept import accept as accept
    from gpuyard.api.cost import cost as cost
    from gpuyard.api.facility import facility as facility
    from gpuyard.api.goodput import goodput as goodput
    from gpuyard.api.lease import lease as lease
    from gpuyard.api.plan import plan as plan
    from gpuyard.api.predict import predict as predict
    from gpuyard.api.simulate import simulate as simulate
    from gpuyard.api.submit import submit as submit
    from gpuyard.api.topology import topology as topology
    from gpuyard.api.watch import watch as watch
    from gpuyard.reporting import batches as batches
    from gpuyard.reporting import checkpoint as checkpoint
    from gpuyard.reporting import exchange as exchange
    from gpuyard.reporting import step as step

_FUNCTIONS = {
    "accept": "gpuyard.api.accept",
    "batches": "gpuyard.reporting",
    "checkpoint": "gpuyard.reporting",
    "cost": "gpuyard.api.cost",
    "exchange": "gpuyard.reporting",
    "facility": "gpuyard.api.facility",
    "goodput": "gpuyard.api.goodput",
    "lease": "gpuyard.api.lease",
    "plan": "gpuyard.api.plan",
    "predict": "gpuyard.api.predict",
    "simulate": "gpuyard.api.simulate",
    "step": "gpuyard.reporting",
    "submit": "gpuyard.api.submit",
    "topology": "gpuyard.api.topology",
    "watch": "gpuyard.api.watch",
}
"""The functions, and the modules that they are in."""
_MODULES = {"catalog": "gpuyard.catalog", "results": "gpuyard.api.results"}
"""The modules with several functions, like `gy.catalog.gpus()`."""


if not TYPE_CHECKING:  # with it, type checkers would accept any name

    def __getattr__(name: str) -> object:
        """Import a name of the API when it is first used (PEP 562)."""
        from importlib import import_module

        if name in _MODULES:
            value: object = import_module(_MODULES[name])
        elif name in _FUNCTIONS:
            value = getattr(import_module(_FUNCTIONS[name]), name)
        else:
            raise AttributeError(f"module 'gpuyard' has no attribute {name!r}")
        globals()[name] = value  # later lookups skip this function
        return value


def __dir__() -> list[str]:
    return [*globals(), *_FUNCTIONS, *_MODULES]
