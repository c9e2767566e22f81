"""The policy for one user's jobs on a machine that shares no GPUs, like the login node of a Slurm cluster."""

import json

from gpuyard.jobs.engines.local.store import Store
from gpuyard.policies import Policy, get_policy

_SETTING = "policy"


def read_policy(store: Store) -> Policy | None:
    """Return the policy that the user has set; None if there is none."""
    text = store.setting(_SETTING)
    if text is None:
        return None
    setting = json.loads(text)
    return get_policy(setting["name"], explore_gpu_s=setting["explore_gpu_seconds"])


def write_policy(store: Store, name: str, explore_gpu_seconds: float | None) -> None:
    """Set the policy."""
    setting = {"name": name, "explore_gpu_seconds": explore_gpu_seconds}
    store.set_setting(_SETTING, json.dumps(setting))
