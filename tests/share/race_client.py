"""A client of the race: leases GPUs and runs a command on them, again and again, until it is told to stop.

Arguments: where the race is checked, a seed, and for how long each command runs at most.

The command takes a lock of its own for each GPU that it was given: if another has it, two hold one GPU. It also
notes the lease that it was acknowledged.
"""

import random
import sys
import time
from pathlib import Path

from gpuyard.share.launcher import run_leased
from gpuyard.share.service.desk import open_desk
from gpuyard.share.store.lease import LeaseRequest
from gpuyard.share.turns.waiting import wait_for_lease

SCRIPT = r"""
cd "$1"
echo "$GPUYARD_LEASE" >> acknowledged
number=10
for gpu in $(echo "$CUDA_VISIBLE_DEVICES" | tr , ' '); do
    eval "exec $number> gpu-$gpu"
    flock -n "$number" || echo "GPU $gpu: $GPUYARD_LEASE" >> doubled
    number=$((number + 1))
done
sleep "$2"
"""


def main(directory: Path, seed: int, longest_seconds: float) -> None:
    chance = random.Random(seed)
    stop = directory / "stop"
    while not stop.exists():
        desk = open_desk()
        count = chance.choice((1, 1, 1, 2, 3))
        lease, lock = wait_for_lease(desk, LeaseRequest(count=count), None, lambda _: None)
        pause = f"{chance.uniform(0, longest_seconds):.3f}"
        run_leased(desk, lease, lock, ["bash", "-c", SCRIPT, "race", str(directory), pause])
        desk.close()
        time.sleep(chance.uniform(0, 0.02))


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3]))
