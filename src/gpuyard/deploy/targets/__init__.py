"""Where machines come from: one folder a target, with `target.py` and the Terraform module that it needs."""

from gpuyard.deploy.targets.aws.target import AwsTarget
from gpuyard.deploy.targets.base import Target
from gpuyard.deploy.targets.gcp.target import GcpTarget
from gpuyard.deploy.targets.gpulab.target import GpulabTarget
from gpuyard.deploy.targets.lab.target import LabTarget
from gpuyard.deploy.targets.lambda_.target import LambdaTarget
from gpuyard.deploy.targets.openstack.target import OpenstackTarget
from gpuyard.deploy.targets.ssh.target import SshTarget
from gpuyard.deploy.targets.virtual_wall.target import VirtualWallTarget

_ALL: tuple[Target, ...] = (
    LabTarget(),
    SshTarget(),
    LambdaTarget(),
    AwsTarget(),
    GcpTarget(),
    OpenstackTarget(),
    GpulabTarget(),
    VirtualWallTarget(),
)
TARGETS: dict[str, Target] = {target.kind: target for target in _ALL}
