"""Time dilation for real computation: what took a second of a core takes `dilation` seconds of the clock.

In a lab whose links run at a tenth of their rate, computation has to take ten times as long too. Sleeping
is counted from CPU time, so nodes that share a core each still look as if they had one of their own.
"""

import time

from torch import Tensor, nn


class Stretch:
    """Sleeps in backward as soon as a gradient is known and before it is handed on for exchange."""

    def __init__(self, module: nn.Module, dilation: float) -> None:
        self._dilation = dilation
        self._on = dilation > 1
        self._cpu_seconds = self._due = 0.0
        self.rest()
        if self._on:
            for parameter in module.parameters():
                if parameter.requires_grad:
                    parameter.register_hook(self._gradient_known)  # type: ignore[no-untyped-call]

    def catch_up(self) -> None:
        """Sleep until what was computed so far has taken as long as it should."""
        if not self._on:
            return
        cpu_seconds = time.thread_time()
        self._due += (cpu_seconds - self._cpu_seconds) * self._dilation
        self._cpu_seconds = cpu_seconds
        early_seconds = self._due - time.perf_counter()
        if early_seconds > 0:
            time.sleep(early_seconds)

    def rest(self) -> None:
        """Waiting for others is not computing: count from here."""
        self._cpu_seconds = time.thread_time()
        self._due = time.perf_counter()

    def _gradient_known(self, _gradient: Tensor) -> None:
        self.catch_up()
