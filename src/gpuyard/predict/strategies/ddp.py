"""PyTorch's DistributedDataParallel."""

from gpuyard.predict import constants as c
from gpuyard.predict.constants import Constant, Tuning
from gpuyard.predict.strategies.ring import Ring

FIRST_BUCKET = Constant(
    "ddp_first_bucket", 1024 * 1024, "bytes", "published", "torch DDP: first bucket of 1 MiB"
)
BUCKET = Constant(
    "ddp_bucket", 25 * 1024 * 1024, "bytes", "published", "torch DDP: bucket_cap_mb=25"
)


class Ddp(Ring):
    """A small first bucket, so that the exchange begins early, then larger ones."""

    name = "ddp"
    constants = (FIRST_BUCKET, BUCKET, c.LAUNCH, c.BACKWARD_SHARE)
    bucket_option = "bucket_cap_mb"
    hierarchical_caveat = "a communication hook of your own: reduce-scatter, all-reduce, all-gather"

    def bucket_caps(self, cap_bytes: float | None) -> tuple[float, ...]:
        cap = cap_bytes or BUCKET.value
        return (min(FIRST_BUCKET.value, cap), cap)

    def slowdowns(self, tuning: Tuning) -> tuple[Constant, ...]:
        """Only DDP's tables show more of it over machines."""
        return (c.slowdown(tuning), c.slowdown_between(tuning))
