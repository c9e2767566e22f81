"""Verify that a deployment works: each check runs on the machines themselves and reports what it found."""

from gpuyard.deploy.verify.check import CheckResult, Verification
from gpuyard.deploy.verify.run import verify

__all__ = ["CheckResult", "Verification", "verify"]
