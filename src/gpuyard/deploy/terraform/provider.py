"""`terraform-provider-gpuyard`: the plugin that Terraform starts. The `tf` package implements the gRPC protocol.

Each resource has its own module. A resource that was removed by hand is missing from the next `read`, so a plan shows it.
"""

import os
import threading
import time

from tf import iface
from tf.runner import run_provider
from tf.schema import Schema
from tf.utils import Diagnostics

from gpuyard.deploy.terraform.gpulab_job import GpulabJob
from gpuyard.deploy.terraform.lab import LabMachineResource, LabResource
from gpuyard.deploy.terraform.lambda_instance import LambdaInstance
from gpuyard.deploy.terraform.resource import State
from gpuyard.deploy.terraform.ssh_host import SshHost
from gpuyard.deploy.terraform.virtual_wall_slice import VirtualWallSlice

ADDRESS = "terraform.local/gpuyard/gpuyard"
_POLL_SECONDS = 1.0


class GpuyardProvider(iface.Provider):  # type: ignore[misc]
    """The provider itself, which needs no configuration."""

    def get_model_prefix(self) -> str:
        return "gpuyard_"

    def get_provider_schema(self, diags: Diagnostics) -> Schema:
        del diags
        return Schema(attributes=[])

    def full_name(self) -> str:
        return ADDRESS

    def validate_config(self, diags: Diagnostics, config: State) -> None:
        pass

    def configure_provider(self, diags: Diagnostics, config: State) -> None:
        pass

    def get_data_sources(self) -> list[type[iface.DataSource]]:
        return []

    def get_resources(self) -> list[type[iface.Resource]]:
        return [
            LabResource,
            LabMachineResource,
            LambdaInstance,
            GpulabJob,
            VirtualWallSlice,
            SshHost,
        ]


def main() -> None:
    threading.Thread(target=_exit_with_parent, args=(os.getppid(),), daemon=True).start()
    run_provider(GpuyardProvider())


def _exit_with_parent(parent_pid: int) -> None:
    """Exit when Terraform was killed: it then stops no provider, and this process would wait forever."""
    while os.getppid() == parent_pid:
        time.sleep(_POLL_SECONDS)
    os._exit(1)


if __name__ == "__main__":
    main()
