"""Where machines come from: one file a target, each with the Terraform module it needs."""

from gpuyard.deploy.targets.base import Target
from gpuyard.deploy.targets.lab_target import LabTarget
from gpuyard.deploy.targets.lambda_target import LambdaTarget
from gpuyard.deploy.targets.ssh_target import SshTarget

TARGETS: dict[str, Target] = {
    target.kind: target for target in (LabTarget(), LambdaTarget(), SshTarget())
}
