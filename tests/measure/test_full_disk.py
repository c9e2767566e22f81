"""On a full disk, the error names the file and stored results stay readable."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import MakeMeasurement

pytestmark = pytest.mark.skipif(
    sys.platform != "linux" or os.geteuid() != 0, reason="a small disk is mounted by root only"
)

# in a separate mount namespace, so that the mount is invisible outside and removed at the end
_SMALL_DISK = """
mount -t tmpfs -o size=256k none "$0" || exit 77
exec "$@"
"""
_CHECKPOINT = """
import sys
from pathlib import Path
import torch
from gpuyard.errors import GpuyardError
from gpuyard.measure.convergence import checkpoint
from gpuyard.measure.convergence.records import EpochResult
disk = Path(sys.argv[1])
file = disk / "c.npz"
epoch = EpochResult(epoch=1, seconds=1, loss=1, training_accuracy=0, held_out_accuracy=0, parameter_checksum="0")
header = checkpoint.CheckpointHeader("one", 1, (epoch.model_dump(mode="json"),))
small, large = torch.nn.Linear(10, 10), torch.nn.Linear(500, 500)
checkpoint.save(file, header, small, torch.optim.SGD(small.parameters()))
try:
    checkpoint.save(file, header, large, torch.optim.SGD(large.parameters()))
except GpuyardError as error:
    print(error)
assert checkpoint.read_header(file) == header
assert [path.name for path in disk.iterdir()] == ["c.npz"]
"""
_STORE = """
import sys
from pathlib import Path
from gpuyard.errors import GpuyardError
from gpuyard.files import write_text
from gpuyard.measure.kind import to_json_lines
from gpuyard.measure.store import ResultsStore
from gpuyard.measure.training.records import Measurement
disk = Path(sys.argv[1])
store = ResultsStore(disk / "results.sqlite")
measurement = Measurement.model_validate_json(sys.argv[2])
kept = []
try:
    while True:
        store.add(measurement.model_copy(update={"id": f"{len(kept):012x}"}))
        kept.append(len(kept))
except GpuyardError as error:
    print(error)
assert kept
assert [int(m.id, 16) for m in store.records(Measurement)] == kept
try:
    write_text(disk / "export.jsonl", to_json_lines(store.records(Measurement)) * 100)
except GpuyardError as error:
    print(error)
assert not list(disk.glob("*export*"))
"""


def on_a_small_disk(tmp_path: Path, program: str, *arguments: str) -> str:
    disk = tmp_path / "disk"
    disk.mkdir()
    done = subprocess.run(
        [
            *("unshare", "--mount", "sh", "-c", _SMALL_DISK, str(disk)),
            *(sys.executable, "-W", "error", "-c", program, str(disk), *arguments),
        ],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)},
        check=False,
    )
    if done.returncode == 77:
        pytest.skip("no disk can be mounted here")
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return done.stdout


def test_a_checkpoint_that_does_not_fit_leaves_the_last_one(tmp_path: Path) -> None:
    assert "c.npz cannot be written: No space left on device" in on_a_small_disk(
        tmp_path, _CHECKPOINT
    )


def test_a_full_store_keeps_what_it_has(tmp_path: Path, make_measurement: MakeMeasurement) -> None:
    output = on_a_small_disk(tmp_path, _STORE, make_measurement().model_dump_json())
    stored, exported = output.splitlines()
    assert "results.sqlite" in stored
    assert "disk" in stored
    assert "export.jsonl cannot be written: No space left on device" in exported
