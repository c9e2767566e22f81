"""Whether what was deployed works: each check runs on the machines themselves and says what it found."""

from gpuyard.deploy.verify.check import Check, Verdict
from gpuyard.deploy.verify.run import verify

__all__ = ["Check", "Verdict", "verify"]
