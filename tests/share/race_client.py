"""A client of the race: lease GPUs and run a command on them, again and again, until a stop file appears.

Arguments: the directory in which the race is checked, a seed, and the longest time of a command.

The command locks a file for each of its GPUs: if another process holds that lock, two processes hold one GPU. It also
records its lease ID.
"""

import random
import sys
import time
from pathlib import Path

from gpuyard.share.client import open_client
from gpuyard.share.launcher import run_leased, wait_for_lease
from gpuyard.share.models import LeaseRequest

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
        client = open_client()
        count = chance.choice((1, 1, 1, 2, 3))
        lease, lock = wait_for_lease(client, LeaseRequest(count=count), None, lambda _: None)
        pause = f"{chance.uniform(0, longest_seconds):.3f}"
        run_leased(client, lease, lock, ["bash", "-c", SCRIPT, "race", str(directory), pause])
        client.close()
        time.sleep(chance.uniform(0, 0.02))


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3]))
