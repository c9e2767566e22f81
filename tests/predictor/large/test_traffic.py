"""The bytes that FSDP, tensor parallelism, and a pipeline send: the formula against real ranks over gloo."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from gpuyard.measure.training.divided import count_micro_batches
from gpuyard.predictor.large.layout import Layout, stack_layouts
from gpuyard.predictor.large.model import describe_model, stack_models
from gpuyard.predictor.large.traffic import Traffic
from gpuyard.specs.transformer import TransformerShape
from gpuyard.workloads.zoo.gpt2 import BYTES as CONFIG
from tests.predictor.large import sharded_ranks as ranks

pytestmark = pytest.mark.usefixtures("can_make_labs")  # a network namespace
ROOT = Path(__file__).parents[3]
# gloo has no reduce-scatter of its own: torch takes a part of an all-reduce, which sends twice as much
GLOO_GRADIENT_BYTES = 8.0
LAYOUTS = {
    "fsdp": Layout(data=2, zero=3, micro_batch=ranks.SAMPLES, global_batch=2 * ranks.SAMPLES, family="pytorch"),
    "tensor": Layout(tensor=2, zero=0, micro_batch=ranks.SAMPLES, global_batch=ranks.SAMPLES),
    "pipeline": Layout(
        pipeline=2, zero=0, micro_batch=ranks.SAMPLES // count_micro_batches(ranks.SAMPLES, ranks.RANKS),
        global_batch=ranks.SAMPLES,
    ),
}  # fmt: skip


def predict(mode: str) -> float:
    """Return the bytes of one step, of both ranks together; everything is in fp32."""
    shape = TransformerShape(
        layers=CONFIG.depth, hidden=CONFIG.width, heads=CONFIG.heads, ffn=4 * CONFIG.width, gated=False,
        vocabulary=CONFIG.vocabulary, tied_embeddings=True, sequence=CONFIG.tokens,
    )  # fmt: skip
    layout = stack_layouts([LAYOUTS[mode]])
    model = stack_models([describe_model(shape)])
    traffic = Traffic(model, layout, 4.0, 4.0, GLOO_GRADIENT_BYTES)
    count = float(layout.micro_batches[0])  # type: ignore[index]
    if mode == "pipeline":
        # activations one way, their gradients the other, and those of the word embedding between the ends
        tied = 2 * 4 * float(model.embedding_parameters[0])  # type: ignore[index]
        return 2 * count * float(traffic.boundary[0]) + tied
    sent = traffic.shard if mode == "fsdp" else traffic.tensor
    return ranks.RANKS * count * float(sent[0])


def measure(mode: str) -> tuple[float, float]:
    """Return the bytes of one step, and how far the loss is from that of the undivided model."""
    commands = "; ".join(
        f"{sys.executable} -m tests.predictor.large.sharded_ranks {mode} 29544 {rank} &"
        for rank in reversed(range(ranks.RANKS))
    ).replace("&;", "&")
    done = subprocess.run(
        ["unshare", "-n", "sh", "-c", f"ip link set lo up; {commands} wait"],
        cwd=ROOT, capture_output=True, text=True, timeout=240, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout.strip(), done.stderr[-2000:]
    sent, difference = map(float, done.stdout.split())
    return sent, difference


@pytest.mark.skipif(shutil.which("unshare") is None, reason="needs util-linux")
@pytest.mark.parametrize("mode", LAYOUTS)
def test_predicted_and_sent_bytes_agree(mode: str) -> None:
    sent, difference = measure(mode)
    assert sent == pytest.approx(predict(mode), rel=0.05)
    assert difference < 1e-4
