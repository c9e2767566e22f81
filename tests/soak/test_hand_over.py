"""The GPUs go back and forth between leases and Slurm while both are used: no GPU has two holders at any time."""

import sys
import tempfile
from collections import Counter
from pathlib import Path

import pytest

from tests.conftest import MACHINE, Cli
from tests.slurm_cluster import slurm_from_configuration

pytestmark = pytest.mark.soak

HAND_OVERS = 4
# A holder locks its GPU's file; a second holder finds the lock taken.
HOLD = """\
#!/bin/sh
flock --nonblock "$1/gpu$CUDA_VISIBLE_DEVICES" sh -c "echo $2 >> '$1/holders'; sleep 0.3" || echo twice >> "$1/holders"
"""
# Both users keep asking; each command refuses while the other scheduler owns the GPUs.
USE_BOTH = """\
directory="$1"; python="$2"
while [ ! -e "$directory/done" ]; do
    srun --quiet --immediate=1 --gres=gpu:1 "$directory/hold" "$directory" slurm; sleep 0.2
done &
while [ ! -e "$directory/done" ]; do
    "$python" -m gpuyard lease 1 --now -- "$directory/hold" "$directory" lease; sleep 0.5
done &
for _ in $(seq "$3"); do
    for owner in slurm local; do
        until "$python" -m gpuyard share use "$owner"; do sleep 0.1; done
        sleep 2
    done
done
touch "$directory/done"
wait
"""


@MACHINE
def test_no_gpu_has_two_holders_during_hand_overs(
    tmp_path: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GPUYARD_SHARE_DIR", str(tmp_path / "share"))
    cli("share", "setup", "--fake-gpus", "2")
    with tempfile.TemporaryDirectory(prefix="gpuyard-export-") as output:
        directory = Path(output)
        directory.chmod(0o755)
        (directory / "hold").write_text(HOLD)
        (directory / "hold").chmod(0o755)
        cli("share", "export", "slurm", "--output-dir", output)
        with slurm_from_configuration(directory / "slurm.conf") as slurm:
            done = slurm.run(
                "sh", "-c", USE_BOTH, "sh", output, sys.executable, str(HAND_OVERS),
            )  # fmt: skip
        assert (directory / "done").exists(), done.stderr[-2000:]
        holders = Counter((directory / "holders").read_text().split())
    assert holders["twice"] == 0, holders
    assert holders["slurm"] > 0 and holders["lease"] > 0, f"{holders}\n{done.stderr[-2000:]}"
