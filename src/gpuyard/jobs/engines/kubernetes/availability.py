"""Check whether Kubernetes can be used from here, without the imports of its client and without a request."""

import os
from importlib.util import find_spec
from pathlib import Path

from gpuyard.jobs.engines.base import Availability

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")


def check_availability() -> Availability:
    """Return whether the client and a configuration are installed."""
    reason = find_problem()
    return Availability(ok=reason is None, reason=reason or "")


def find_problem() -> str | None:
    """Return why Kubernetes cannot be used from here, or None; does not contact a cluster."""
    if find_spec("kubernetes") is None:
        return (
            "the Python package kubernetes is not installed; run pip install 'gpuyard[kubernetes]'"
        )
    if not find_config_files() and not _is_in_pod():
        return "kubeconfig not found: neither $KUBECONFIG nor ~/.kube/config is a file"
    return None


def find_config_files() -> list[Path]:
    """Find kubeconfig files as kubectl does."""
    variable = os.environ.get("KUBECONFIG")
    names = variable.split(os.pathsep) if variable else ["~/.kube/config"]
    # unlike pathlib, these raise no error about a home directory that does not exist or is not readable
    paths = map(os.path.expanduser, filter(None, names))
    return [Path(path) for path in paths if os.path.isfile(path)]  # noqa: PTH113


def _is_in_pod() -> bool:
    return "KUBERNETES_SERVICE_HOST" in os.environ and (SERVICE_ACCOUNT / "token").is_file()
