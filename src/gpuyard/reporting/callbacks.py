"""Calls `step()` from torch's optimizers, Lightning, or the Hugging Face trainer, for users who write no loop.

A package is imported only when its callback is created.
"""

import importlib
import sys
import time
from collections.abc import Iterable, Mapping
from typing import Any

from gpuyard.reporting.reporter import add_checkpoint, add_phase, step

_MAX_DEPTH = 4


def watch(optimizer: Any, samples: float) -> Any:
    """Report each `optimizer.step()` of a torch optimizer, with `samples` samples in this process.

    Return a handle; its `remove()` stops the reports.
    """
    return optimizer.register_step_post_hook(lambda *_: step(samples))


def lightning_callback(samples: float | None = None) -> Any:
    """Create a callback for Lightning's `Trainer(callbacks=[…])`.

    `samples` is the batch size; by default, it is read from the first tensor of each batch.
    """
    base = _import_lightning().Callback

    class LightningSteps(base):  # type: ignore[misc, valid-type]
        """Reports optimizer steps; with accumulated gradients, one step has several batches."""

        def __init__(self) -> None:
            self._pending = 0.0
            self._global_step: int | None = None
            self._batch_ended = 0.0

        def on_train_start(self, trainer: Any, _module: Any) -> None:
            self._pending, self._global_step = 0.0, trainer.global_step

        def on_train_batch_start(self, *_: Any) -> None:
            if self._batch_ended:  # Lightning fetches the next batch in between
                add_phase("input", time.perf_counter() - self._batch_ended)

        def on_train_batch_end(
            self, trainer: Any, _module: Any, _outputs: Any, batch: Any, _index: int
        ) -> None:
            self._batch_ended = time.perf_counter()
            self._pending += samples if samples is not None else find_batch_size(batch)
            if trainer.global_step == self._global_step:
                return
            total = trainer.estimated_stepping_batches
            step(
                self._pending,
                number=trainer.global_step,
                total=int(total) if 0 < total < float("inf") else None,
            )
            self._pending, self._global_step = 0.0, trainer.global_step

    return LightningSteps()


def huggingface_callback() -> Any:
    """Create a callback for Hugging Face's `Trainer(callbacks=[…])`."""
    base = importlib.import_module("transformers").TrainerCallback

    class HuggingFaceSteps(base):  # type: ignore[misc, valid-type]
        """Reports optimizer steps, with the batch size of the training arguments."""

        def __init__(self) -> None:
            self._loss: float | None = None
            self._before_save = self._last_event = 0.0

        def on_step_begin(self, *_: Any, **__: Any) -> None:
            if self._last_event:  # the trainer fetches the next batches in between
                add_phase("input", time.perf_counter() - self._last_event)

        def on_evaluate(self, *_: Any, **__: Any) -> None:
            self._before_save = self._last_event = time.perf_counter()

        def on_save(self, *_: Any, **__: Any) -> None:
            # the trainer saves right after the step and its evaluation
            if self._before_save:
                add_checkpoint(time.perf_counter() - self._before_save)
                self._last_event = time.perf_counter()

        def on_step_end(self, args: Any, state: Any, _control: Any, **_: Any) -> None:
            step(
                args.train_batch_size * args.gradient_accumulation_steps,
                loss=self._loss,
                number=state.global_step,
                total=state.max_steps if state.max_steps > 0 else None,
            )
            self._before_save = self._last_event = time.perf_counter()

        def on_log(
            self, _args: Any, _state: Any, _control: Any, logs: Any = None, **_: Any
        ) -> None:
            loss = (logs or {}).get("loss")
            self._loss = float(loss) if isinstance(loss, int | float) else self._loss

    return HuggingFaceSteps()


def _import_lightning() -> Any:
    """Import the package that the training uses: each of the two rejects the other's callbacks."""
    names = ("lightning.pytorch", "pytorch_lightning")
    loaded = [name for name in names if name in sys.modules]
    for name in (*loaded, *names):
        try:
            return importlib.import_module(name)
        except ModuleNotFoundError:
            continue
    raise ModuleNotFoundError(
        "the Lightning callback needs Lightning, which is not installed: pip install lightning"
    )


def find_batch_size(batch: Any, depth: int = _MAX_DEPTH) -> float:
    """Return the length of the first tensor in a nested batch, or 1 if there is none."""
    shape = getattr(batch, "shape", None)
    if shape is not None and len(shape):
        return float(shape[0])
    if depth and not isinstance(batch, str | bytes):
        parts: Iterable[Any] = ()
        if isinstance(batch, Mapping):
            parts = batch.values()
        elif isinstance(batch, list | tuple):
            parts = batch
        for part in parts:
            size = find_batch_size(part, depth - 1)
            if size != 1:
                return size
    return 1.0
