"""The callbacks for torch's optimizers; those for Lightning and transformers are tested in `make soak`."""

import subprocess
from pathlib import Path

import pytest

from gpuyard.reporting.callbacks import find_batch_size
from gpuyard.reporting.windows import StepsFile, StepWindow
from tests.reporting.test_reporter import run_loop

OPTIMIZER = """
import torch
from gpuyard.reporting import watch
weight = torch.nn.Parameter(torch.ones(3))
optimizer = torch.optim.SGD([weight], lr=0.1)
handle = watch(optimizer, samples=16)
for _ in range(15):
    optimizer.zero_grad()
    weight.square().sum().backward()
    optimizer.step()
handle.remove()
optimizer.step()
"""
LIGHTNING = """
import torch, {name} as pl
from gpuyard.reporting import lightning_callback

class Net(pl.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(8, 1)
    def training_step(self, batch, index):
        x, y = batch['pair']
        return torch.nn.functional.mse_loss(self.layer(x), y)
    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.01)

pairs = [{{'name': 'n', 'pair': (torch.ones(8), torch.ones(1))}} for _ in range(400)]
trainer = pl.Trainer(max_epochs=2, accelerator='cpu', devices=1, accumulate_grad_batches=2, logger=False,
                     enable_checkpointing=False, enable_progress_bar=False, callbacks=[lightning_callback()])
trainer.fit(Net(), torch.utils.data.DataLoader(pairs, batch_size=10))
"""
TRANSFORMERS = """
import sys, torch
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments
from gpuyard.reporting import huggingface_callback

torch.manual_seed(0)
model = GPT2LMHeadModel(GPT2Config(n_layer=1, n_head=2, n_embd=16, vocab_size=50, n_positions=8))
data = [{'input_ids': torch.arange(8), 'labels': torch.arange(8)} for _ in range(64)]
arguments = TrainingArguments(output_dir=sys.argv[1] if len(sys.argv) > 1 else '.', max_steps=20, use_cpu=True,
    per_device_train_batch_size=4, gradient_accumulation_steps=2, logging_steps=5, report_to=[], save_strategy='no')
Trainer(model=model, args=arguments, train_dataset=data, callbacks=[huggingface_callback()]).train()
"""


def run_and_read(script: str, tmp_path: Path) -> list[StepWindow]:
    file = tmp_path / "steps"
    try:
        run_loop(script, GPUYARD_STEPS=str(file), CUDA_VISIBLE_DEVICES="", HF_HUB_OFFLINE="1")
    except subprocess.CalledProcessError as failed:
        pytest.fail(failed.stderr)
    return StepsFile(file).read()


def test_optimizer_steps_are_reported_until_the_handle_is_removed(tmp_path: Path) -> None:
    last = run_and_read(OPTIMIZER, tmp_path)[-1]
    assert (last.steps_done, last.samples_done) == (15, 240)


@pytest.mark.parametrize("name", ["lightning_callback", "huggingface_callback"])
def test_a_missing_package_is_an_error_only_when_its_callback_is_created(name: str) -> None:
    script = (
        "import sys\n"
        "for name in ('lightning', 'lightning.pytorch', 'pytorch_lightning', 'transformers'):\n"
        "    sys.modules[name] = None\n"
        f"from gpuyard.reporting import {name}\n"
        f"try:\n    {name}()\nexcept ModuleNotFoundError as missing:\n    print(missing)\n"
    )
    done = run_loop(script)
    assert "lightning" in done.stdout or "transformers" in done.stdout


@pytest.mark.soak
@pytest.mark.parametrize("name", ["lightning.pytorch", "pytorch_lightning"])
def test_lightning_reports_optimizer_steps_with_their_samples(name: str, tmp_path: Path) -> None:
    pytest.importorskip(name)
    last = run_and_read(LIGHTNING.format(name=name), tmp_path)[-1]
    assert (last.steps_done, last.samples_done) == (40, 800)
    assert (last.number, last.total) == (40, 40)


@pytest.mark.soak
def test_the_hugging_face_trainer_reports_samples_number_and_loss(tmp_path: Path) -> None:
    pytest.importorskip("transformers")
    last = run_and_read(TRANSFORMERS, tmp_path)[-1]
    assert (last.steps_done, last.samples_done) == (20, 160)
    assert (last.number, last.total) == (20, 20)
    assert last.loss is not None


def test_the_batch_size_is_that_of_the_first_tensor() -> None:
    class Tensor:
        shape = (32, 3)

    assert find_batch_size([{"name": "n", "image": Tensor()}]) == 32
    assert find_batch_size("text") == 1
