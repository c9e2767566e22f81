"""Sources of machines. Each target has a folder with `target.py` and the Terraform module `main.tf`, if it needs one."""

from gpuyard.deploy.targets.aws.target import AwsProvisioner
from gpuyard.deploy.targets.base import Provisioner
from gpuyard.deploy.targets.gcp.target import GcpProvisioner
from gpuyard.deploy.targets.gpulab.target import GpulabProvisioner
from gpuyard.deploy.targets.lab.target import LabProvisioner
from gpuyard.deploy.targets.lambda_.target import LambdaProvisioner
from gpuyard.deploy.targets.openstack.target import OpenstackProvisioner
from gpuyard.deploy.targets.ssh.target import SshProvisioner
from gpuyard.deploy.targets.virtual_wall.target import VirtualWallProvisioner

_PROVISIONERS: tuple[Provisioner, ...] = (
    LabProvisioner(),
    SshProvisioner(),
    LambdaProvisioner(),
    AwsProvisioner(),
    GcpProvisioner(),
    OpenstackProvisioner(),
    GpulabProvisioner(),
    VirtualWallProvisioner(),
)
TARGETS: dict[str, Provisioner] = {target.kind: target for target in _PROVISIONERS}
