"""Record the outputs that `test_recorded.py` compares with: `python -m tests.answers.record [NAME…]`."""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.answers.test_recorded import COMMANDS, HERE, command_line


def main() -> None:
    for name in sys.argv[1:] or COMMANDS:
        with tempfile.TemporaryDirectory() as home:
            done = subprocess.run(
                [sys.executable, "-m", "gpuyard", *command_line(name, Path(home)), "--json"],
                env={**os.environ, "GPUYARD_HOME": f"{home}/gpuyard"},
                stdout=subprocess.PIPE,
                check=True,
            )
        answer = json.dumps(json.loads(done.stdout), ensure_ascii=False, separators=(",", ":"))
        (HERE / f"{name}.json").write_text(answer + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
