"""gpuyard takes a machine-learning team from one GPU to a data center.

`import gpuyard as gy` gives a notebook the answers of the command line; docs/python.md lists the names. They are imported
when they are first used, so that the import itself takes a few milliseconds.
"""

from gpuyard.version import __version__ as __version__

# a copy of typing's, because `python -m gpuyard` would look for `typing` in the current directory first
TYPE_CHECKING = False

if TYPE_CHECKING:
    from gpuyard import catalog as catalog
    from gpuyard.api import bench as bench
    from gpuyard.api import results as results
    from gpuyard.api.accept import accept as accept
    from gpuyard.api.calibration import calibrate as calibrate
    from gpuyard.api.calibration import remove_calibration as remove_calibration
    from gpuyard.api.cost import cost as cost
    from gpuyard.api.doctor import doctor as doctor
    from gpuyard.api.fabric import fabric as fabric
    from gpuyard.api.fabric import propose_fabric as propose_fabric
    from gpuyard.api.facility import facility as facility
    from gpuyard.api.goodput import goodput as goodput
    from gpuyard.api.gpu_ranking import rank_gpus as rank_gpus
    from gpuyard.api.growth import growth as growth
    from gpuyard.api.hybrid import hybrid as hybrid
    from gpuyard.api.invoice import invoice as invoice
    from gpuyard.api.lease import lease as lease
    from gpuyard.api.offers import compare_offers as compare_offers
    from gpuyard.api.plan import plan as plan
    from gpuyard.api.playbook import playbook as playbook
    from gpuyard.api.predict import predict as predict
    from gpuyard.api.prices import reset_prices as reset_prices
    from gpuyard.api.prices import update_prices as update_prices
    from gpuyard.api.queue import explain as explain
    from gpuyard.api.queue import queue as queue
    from gpuyard.api.queue import status as status
    from gpuyard.api.reservations import cancel_reservation as cancel_reservation
    from gpuyard.api.reservations import reservations as reservations
    from gpuyard.api.reservations import reserve as reserve
    from gpuyard.api.share import audit as audit
    from gpuyard.api.share import usage as usage
    from gpuyard.api.share import who as who
    from gpuyard.api.simulate import simulate as simulate
    from gpuyard.api.storage import storage as storage
    from gpuyard.api.study import run_study as run_study
    from gpuyard.api.submit import submit as submit
    from gpuyard.api.topology import compare_topologies as compare_topologies
    from gpuyard.api.topology import topology as topology
    from gpuyard.api.train import train as train
    from gpuyard.api.validation import validate as validate
    from gpuyard.api.watch import watch as watch
    from gpuyard.reporting import batches as batches
    from gpuyard.reporting import checkpoint as checkpoint
    from gpuyard.reporting import exchange as exchange
    from gpuyard.reporting import step as step

_FUNCTIONS = {
    "accept": "gpuyard.api.accept",
    "audit": "gpuyard.api.share",
    "batches": "gpuyard.reporting",
    "calibrate": "gpuyard.api.calibration",
    "cancel_reservation": "gpuyard.api.reservations",
    "checkpoint": "gpuyard.reporting",
    "compare_offers": "gpuyard.api.offers",
    "compare_topologies": "gpuyard.api.topology",
    "cost": "gpuyard.api.cost",
    "doctor": "gpuyard.api.doctor",
    "exchange": "gpuyard.reporting",
    "explain": "gpuyard.api.queue",
    "fabric": "gpuyard.api.fabric",
    "facility": "gpuyard.api.facility",
    "goodput": "gpuyard.api.goodput",
    "growth": "gpuyard.api.growth",
    "hybrid": "gpuyard.api.hybrid",
    "invoice": "gpuyard.api.invoice",
    "lease": "gpuyard.api.lease",
    "plan": "gpuyard.api.plan",
    "playbook": "gpuyard.api.playbook",
    "predict": "gpuyard.api.predict",
    "propose_fabric": "gpuyard.api.fabric",
    "queue": "gpuyard.api.queue",
    "rank_gpus": "gpuyard.api.gpu_ranking",
    "remove_calibration": "gpuyard.api.calibration",
    "reservations": "gpuyard.api.reservations",
    "reserve": "gpuyard.api.reservations",
    "reset_prices": "gpuyard.api.prices",
    "run_study": "gpuyard.api.study",
    "simulate": "gpuyard.api.simulate",
    "status": "gpuyard.api.queue",
    "step": "gpuyard.reporting",
    "storage": "gpuyard.api.storage",
    "submit": "gpuyard.api.submit",
    "topology": "gpuyard.api.topology",
    "train": "gpuyard.api.train",
    "update_prices": "gpuyard.api.prices",
    "usage": "gpuyard.api.share",
    "validate": "gpuyard.api.validation",
    "watch": "gpuyard.api.watch",
    "who": "gpuyard.api.share",
}
"""The functions, and the modules that they are in."""
_MODULES = {
    "bench": "gpuyard.api.bench",
    "catalog": "gpuyard.catalog",
    "results": "gpuyard.api.results",
}
"""The modules with several functions, like `gy.catalog.gpus()`."""
__all__ = ["__version__", *_FUNCTIONS, *_MODULES]  # noqa: PLE0604


if not TYPE_CHECKING:  # with it, type checkers would accept any name

    def __getattr__(name: str) -> object:
        """Import a name of the API when it is first used (PEP 562)."""
        from importlib import import_module

        if name in _MODULES:
            value: object = import_module(_MODULES[name])
        elif name in _FUNCTIONS:
            value = getattr(import_module(_FUNCTIONS[name]), name)
            if _FUNCTIONS[name] != "gpuyard.reporting":  # it imports nothing, for training loops
                from gpuyard.api.parameters import with_parameters

                value = with_parameters(value)
        else:
            raise AttributeError(f"module 'gpuyard' has no attribute {name!r}")
        globals()[name] = value  # later lookups skip this function
        return value


def __dir__() -> list[str]:
    return sorted(__all__)
