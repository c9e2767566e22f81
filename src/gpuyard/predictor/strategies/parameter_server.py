"""Parameter servers on all machines: every worker sends its gradients and fetches parameters."""

import numpy as np

from gpuyard.predictor import constants as c
from gpuyard.predictor.collectives import parameter_server_seconds
from gpuyard.predictor.constants import Constant, Tuning
from gpuyard.predictor.strategies import remedies as proposals
from gpuyard.predictor.strategies.base import SecondsBySize, Strategy
from gpuyard.predictor.table import Floats, Paths, StepTable
from gpuyard.specs import ExchangeOptions


class ParameterServer(Strategy):
    """Workers that exchange each layer separately with parameter servers."""

    name = "parameter-server"
    options = frozenset({"accumulate", "compress"})
    unsupported_option = (
        "workers and a parameter server exchange every layer separately: {} needs ddp or horovod"
    )
    constants = (c.BACKWARD_SHARE,)
    remedies = (
        proposals.propose_ddp,
        proposals.propose_half_precision,
        proposals.propose_accumulation,
    )

    def find_conflict(self, exchange: ExchangeOptions) -> str | None:
        conflict = super().find_conflict(exchange)
        if conflict is None and exchange.powersgd_rank is not None:
            return "PowerSGD is an all-reduce hook: compress needs ddp or horovod"
        return conflict

    def bucket_caps(self, cap_bytes: float | None) -> tuple[float, ...]:
        return (0.0,)

    def bucket_seconds(self, table: StepTable) -> SecondsBySize:
        several = table.gpus > 1
        between = parameter_server_seconds(
            self.workers(table), table.nodes, 1.0, table.between_bytes_per_second
        )
        per_byte = np.where(several, 2 / table.inside_bytes_per_second + between, 0.0)
        latency = np.where(several, 2 * table.hop_seconds, 0.0)
        return lambda size_bytes: latency + per_byte * size_bytes

    def workers(self, paths: Paths) -> Floats:
        return paths.gpus

    def overlap(self, tuning: Tuning) -> Constant:
        return c.overlap(tuning.overlap_parameter_server)

    def overlap_between(self, tuning: Tuning) -> Constant:
        return c.overlap_between(tuning.overlap_parameter_server)


class DistributedReplicated(ParameterServer):
    """Parameter servers with one worker per machine: its GPUs add up their gradients first.

    It occurs in published tables; no current framework offers it.
    """

    name = "distributed-replicated"

    def workers(self, paths: Paths) -> Floats:
        return paths.nodes
