"""The bytes that FSDP, tensor parallelism, and a pipeline send: the formula against real ranks over gloo."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from gpuyard.predictor.large.layout import Layout, stack_layouts
from gpuyard.predictor.large.model import describe_model, stack_models
from gpuyard.predictor.large.traffic import Traffic
from gpuyard.specs.transformer import TransformerShape
from tests.predictor.large import sharded_ranks as ranks

pytestmark = pytest.mark.usefixtures("can_make_labs")  # a network namespace
ROOT = Path(__file__).parents[3]
GLOO_GRADIENT_BYTES = (
    8.0  # gloo scatters fp32 gradients by a whole all-reduce, which sends twice as much
)
# DTensor reduces the gradients of queries, keys, and values one by one: 6 all-reduces per layer instead of 4
SEPARATE_PROJECTIONS = 1.5
LAYOUTS = {
    "fsdp": Layout(data=2, zero=3, micro_batch=ranks.SAMPLES, global_batch=2 * ranks.SAMPLES, family="pytorch"),
    "tensor": Layout(tensor=2, zero=0, micro_batch=ranks.SAMPLES, global_batch=ranks.SAMPLES),
    "pipeline": Layout(
        pipeline=2, zero=0, micro_batch=ranks.SAMPLES // ranks.MICRO_BATCHES, global_batch=ranks.SAMPLES
    ),
}  # fmt: skip


def predict(mode: str) -> float:
    """Return the bytes of one step, of both ranks together; everything is in fp32."""
    shape = TransformerShape(
        layers=ranks.LAYERS, hidden=ranks.HIDDEN, heads=ranks.HEADS, ffn=ranks.FFN, gated=False, vocabulary=1,
        tied_embeddings=True, sequence=ranks.TOKENS,
    )  # fmt: skip
    layout = stack_layouts([LAYOUTS[mode]])
    traffic = Traffic(stack_models([describe_model(shape)]), layout, 4.0, 4.0, GLOO_GRADIENT_BYTES)
    count = float(layout.micro_batches[0])  # type: ignore[index]
    if mode == "pipeline":  # activations one way, their gradients the other
        return 2 * count * float(traffic.boundary[0])
    sent = traffic.shard if mode == "fsdp" else SEPARATE_PROJECTIONS * traffic.tensor
    return ranks.RANKS * count * float(sent[0])


def measure(mode: str) -> float:
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
    return float(done.stdout)


@pytest.mark.skipif(shutil.which("unshare") is None, reason="needs util-linux")
@pytest.mark.parametrize("mode", LAYOUTS)
def test_predicted_and_sent_bytes_agree(mode: str) -> None:
    assert measure(mode) == pytest.approx(predict(mode), rel=0.05)
