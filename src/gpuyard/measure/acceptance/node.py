"""The program that acceptance runs on a node: `python -m gpuyard.measure.acceptance.node TASK [SETTINGS]`.

It prints its answer as one line of JSON. It needs no other node, so a node that is down spoils nothing.
"""

import json
import sys
from pathlib import Path

from pydantic import BaseModel


def main(arguments: list[str]) -> None:
    """Do one task: `inventory`, or `speed` with its settings as JSON."""
    answer: BaseModel
    if arguments[0] == "inventory":
        from gpuyard.measure.acceptance.inventory import read_inventory

        answer = read_inventory()
    else:
        from gpuyard.measure.acceptance.node_speed import measure_node

        settings = json.loads(arguments[1])
        storage = settings["storage"]
        answer = measure_node(
            settings["seconds"],
            None if storage is None else Path(storage),
            settings["storage_bytes"],
            shared_machine=settings["shared_machine"],
        )
    sys.stdout.write(answer.model_dump_json() + "\n")


if __name__ == "__main__":
    main(sys.argv[1:])
