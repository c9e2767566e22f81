"""Parameter servers spread over the machines: every worker sends its gradients and fetches parameters."""

import numpy as np

from gpuyard.predict import constants as c
from gpuyard.predict.collectives import parameter_server_seconds
from gpuyard.predict.constants import Constant, Tuning
from gpuyard.predict.strategies import remedies as offered
from gpuyard.predict.strategies.base import SecondsBySize, Strategy
from gpuyard.predict.table import Floats, Paths, StepTable
from gpuyard.specs import ExchangeOptions


class ParameterServer(Strategy):
    """Every layer is exchanged on its own."""

    name = "parameter-server"
    options = frozenset({"accumulate", "compress"})
    no_other_option = (
        "workers and a parameter server exchange every layer on its own: {} needs ddp or horovod"
    )
    constants = (c.BACKWARD_SHARE,)
    remedies = (offered.instead_ddp, offered.half_precision, offered.accumulation)

    def refusal(self, exchange: ExchangeOptions) -> str | None:
        refused = super().refusal(exchange)
        if refused is None and exchange.powersgd_rank is not None:
            return "PowerSGD is a hook of an all-reduce: compress needs ddp or horovod"
        return refused

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
    """The GPUs of a machine add up their gradients first, so each machine is one worker. Published
    tables have it; no framework of today does."""

    name = "distributed-replicated"

    def workers(self, paths: Paths) -> Floats:
        return paths.nodes
