"""The sensors of a rank: waiting in DDP, the rates of links, the speeds of cards, and the clock of a GPU."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from statistics import median
from types import SimpleNamespace
from typing import Any

import pytest

from gpuyard.jobs.verdict import judge
from gpuyard.reporting.gpu_state import REASONS, GpuMeter
from gpuyard.reporting.network_cards import read_card_speeds
from gpuyard.reporting.ranks import parse_rank_windows, read_rank_log
from gpuyard.reporting.reporter import RANK_MARKER
from tests.ssh_hosts import find_free_port

SMI = Path(__file__).parents[1] / "data" / "tool_output" / "smi_clocks.txt"
RANK = """
import os, sys, time
import torch, torch.distributed as dist
import gpuyard
from gpuyard.reporting.ranks import read_rank_log
from pathlib import Path
from torch import nn

torch.set_num_threads(1)
dist.init_process_group("gloo")
model = nn.parallel.DistributedDataParallel(nn.Sequential(*[nn.Linear(300, 300) for _ in range(4)]))
done = torch.zeros(1)
while not done.item():
    loss = model(torch.randn(8, 300)).sum()
    if dist.get_rank() == 1:
        time.sleep(0.1)
    loss.backward()
    gpuyard.step()
    log = Path(sys.argv[1])
    if dist.get_rank() == 0 and log.exists():
        ranks = [window.rank for window in read_rank_log(log) if not window.warmup]
        done[0] = min(ranks.count(rank) for rank in range(dist.get_world_size())) >= 3
    dist.broadcast(done, 0)
dist.destroy_process_group()
os._exit(0)  # threads of PyTorch sometimes abort while the interpreter ends
"""


def start_rank(argv: list[str], rank: int, world: int, log: Path, **more: str) -> Any:
    environment = {
        **os.environ, "RANK": str(rank), "WORLD_SIZE": str(world), "GPUYARD_STEPS": str(log), **more,
    }  # fmt: skip
    return subprocess.Popen(argv, env=environment, stderr=subprocess.PIPE, text=True)


def finish(ranks: list[Any]) -> None:
    try:
        for rank in ranks:
            _, errors = rank.communicate(timeout=300)
            assert rank.returncode == 0, errors
    finally:
        for rank in ranks:
            rank.kill()
            rank.communicate()


def test_ddp_is_timed_without_a_change_to_the_training(tmp_path: Path) -> None:
    """Rank 1 sleeps before its backward pass, so rank 0 waits for it inside its own."""
    log = tmp_path / "steps"
    argv = [sys.executable, "-c", RANK, str(log)]
    where = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(find_free_port())}
    finish([start_rank(argv, rank, 2, log, **where) for rank in range(2)])
    windows = [window for window in read_rank_log(log) if not window.warmup]
    by_rank = {
        rank: [w.exchange_seconds for w in windows if w.rank == rank and w.exchange_seconds]
        for rank in range(2)
    }
    assert median(by_rank[0]) > median(by_rank[1])
    assert all(w.load_per_core is not None for w in windows)


def test_cards_that_are_up_are_read(tmp_path: Path) -> None:
    """The files are as Linux writes them: -1 if a card is down, and InfiniBand's rate with its name."""
    for name, speed in (("eth0", "25000\n"), ("eth1", "-1\n")):
        (tmp_path / "net" / name / "device").mkdir(parents=True)
        (tmp_path / "net" / name / "speed").write_text(speed)
    (tmp_path / "net" / "veth7").mkdir()
    (tmp_path / "net" / "veth7" / "speed").write_text("10000\n")
    port = tmp_path / "infiniband" / "mlx5_0" / "ports" / "1"
    port.mkdir(parents=True)
    (port / "rate").write_text("200 Gb/sec (4X HDR)\n")
    assert read_card_speeds(tmp_path) == {"eth0": 25e9, "mlx5_0": 200e9}
    assert read_card_speeds(tmp_path / "nothing") == {}


class RecordedNvml(SimpleNamespace):
    """NVML with the values of a recorded `nvidia-smi -q`; calls that the driver lacks fail as NVML's do."""

    NVML_CLOCK_SM = 1

    class NVMLError(Exception):
        pass

    def __init__(self, text: str) -> None:
        clocks = [int(mhz) for mhz in re.findall(r"SM +: (\d+) MHz", text)]
        active = re.findall(r"^ +(.+?) +: Active$", text, re.MULTILINE)
        bits = sum(bit for bit, name in REASONS.items() if name in active)
        super().__init__(
            nvmlDeviceGetClockInfo=lambda *_: clocks[0],
            nvmlDeviceGetMaxClockInfo=lambda *_: clocks[-1],
            nvmlDeviceGetCurrentClocksThrottleReasons=lambda *_: bits,
            nvmlDeviceGetComputeRunningProcesses=lambda *_: (
                [1] * len(re.findall("Process ID", text))
            ),
        )


def test_clocks_and_their_reasons_are_read() -> None:
    facts = GpuMeter(RecordedNvml(SMI.read_text()), None).read()
    assert (facts["clock_mhz"], facts["max_clock_mhz"]) == (382, 1530)
    assert facts["clock_reasons"] == ["HW Slowdown", "HW Power Brake Slowdown"]
    window = {"rank": 1, "steps": 9, "step_seconds": 0.1, **facts}
    (parsed,) = parse_rank_windows([RANK_MARKER + json.dumps(window)])
    verdict = judge([parsed])
    assert verdict is not None
    assert [cause.name for cause in verdict.causes] == ["throttled clock"]
    assert "382 MHz of 1,530 (HW Slowdown, HW Power Brake Slowdown)" in verdict.sentence
    nothing = RecordedNvml("")

    def fail(*_: object) -> None:
        raise nothing.NVMLError("not supported")

    nothing.nvmlDeviceGetClockInfo = nothing.nvmlDeviceGetMaxClockInfo = fail
    assert GpuMeter(nothing, None).read() == {"clock_reasons": [], "gpu_processes": 0}


@pytest.mark.parametrize(
    "broken",
    [
        {"links": [{"from": "a", "to": "b", "bytes": 1, "seconds": 0, "retransmits": 0}]},
        {"links": [5]},
        {"cards": {"eth0": -1}},
        {"cards": 7},
        {"clock_mhz": "fast"},
        {"gpu_processes": 1.5},
    ],
)
def test_broken_lines_are_skipped(tmp_path: Path, broken: dict[str, Any]) -> None:
    log = tmp_path / "log"
    good = {"rank": 1, "steps": 1, "step_seconds": 0.1}
    lines = [RANK_MARKER + json.dumps(report) for report in (good, {**good, **broken})]
    log.write_text("\n".join(lines) + "\n")
    assert len(read_rank_log(log)) == 1
