"""`step()` for those who don't write the loop themselves: torch's optimizers, Lightning, the Hugging Face trainer.

None of these packages is imported before its callback is asked for.
"""

import importlib
import sys
from collections.abc import Iterable, Mapping
from typing import Any

from gpuyard.steps.reporter import step

_DEPTH = 4


def watch(optimizer: Any, samples: float) -> Any:
    """Report each `optimizer.step()` of torch, on `samples` samples of this process.

    What it returns has a `remove()`.
    """
    return optimizer.register_step_post_hook(lambda *_: step(samples))


def lightning_callback(samples: float | None = None) -> Any:
    """For `Trainer(callbacks=[…])` of Lightning; without `samples` of a batch, its first tensor says how many."""
    base = _lightning().Callback

    class LightningSteps(base):  # type: ignore[misc, valid-type]
        """A step is one of the optimizer: with accumulated gradients it has several batches."""

        def __init__(self) -> None:
            self._pending = 0.0
            self._global_step: int | None = None

        def on_train_start(self, trainer: Any, _module: Any) -> None:
            self._pending, self._global_step = 0.0, trainer.global_step

        def on_train_batch_end(
            self, trainer: Any, _module: Any, _outputs: Any, batch: Any, _index: int
        ) -> None:
            self._pending += samples if samples is not None else batch_size(batch)
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
    """For `Trainer(callbacks=[…])` of Hugging Face's transformers."""
    base = importlib.import_module("transformers").TrainerCallback

    class HuggingFaceSteps(base):  # type: ignore[misc, valid-type]
        """A step is one of the optimizer, on as many samples as the arguments say."""

        def __init__(self) -> None:
            self._loss: float | None = None

        def on_step_end(self, args: Any, state: Any, _control: Any, **_: Any) -> None:
            step(
                args.train_batch_size * args.gradient_accumulation_steps,
                loss=self._loss,
                number=state.global_step,
                total=state.max_steps if state.max_steps > 0 else None,
            )

        def on_log(
            self, _args: Any, _state: Any, _control: Any, logs: Any = None, **_: Any
        ) -> None:
            said = (logs or {}).get("loss")
            self._loss = float(said) if isinstance(said, int | float) else self._loss

    return HuggingFaceSteps()


def _lightning() -> Any:
    """Under the name that the training uses: the two don't take each other's callbacks."""
    names = ("lightning.pytorch", "pytorch_lightning")
    loaded = [name for name in names if name in sys.modules]
    for name in (*loaded, *names):
        try:
            return importlib.import_module(name)
        except ModuleNotFoundError:
            continue
    raise ModuleNotFoundError(
        "the callback for Lightning needs it; get it with: pip install lightning"
    )


def batch_size(batch: Any, depth: int = _DEPTH) -> float:
    """Of the first tensor in it, however it is nested; 1 where there is none."""
    shape = getattr(batch, "shape", None)
    if shape is not None and len(shape):
        return float(shape[0])
    if depth and not isinstance(batch, str | bytes):
        inner: Iterable[Any] = ()
        if isinstance(batch, Mapping):
            inner = batch.values()
        elif isinstance(batch, list | tuple):
            inner = batch
        for part in inner:
            found = batch_size(part, depth - 1)
            if found != 1:
                return found
    return 1.0
