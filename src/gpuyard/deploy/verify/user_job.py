"""Submit a job in the shared storage as the user who runs this, and print what its nodes did, as JSON.

`verify` sends this file to the head, whose own Python runs it. So it imports only the standard library. Its arguments are
the shared directory, the number of nodes, and `gpuyard` or `sbatch`.
"""

import json
import os
import pwd
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

_NAME = "gpuyard-verify"
_WAIT_SECONDS = 35
_TIMED_OUT = (75, 124)  # exit statuses of `gpuyard wait` and timeout(1)
_COMMAND = 'hostname > "node-${NODE_RANK:-$SLURM_NODEID}"; echo "ran on $(hostname)."'
_LOG_LINE = re.compile(r"ran on (\S+)\.$", re.MULTILINE)
_SITE_FILE = Path("/etc/gpuyard/job_directory")


def main() -> None:
    shared, nodes, submitter = sys.argv[1:4]
    answer: dict[str, Any] = {"error": "", "waits": False, "log": [], "owners": {}}
    submit = _submit_with_gpuyard if submitter == "gpuyard" else _submit_with_sbatch
    answer["installed"] = submitter != "gpuyard" or shutil.which("gpuyard") is not None
    try:
        with tempfile.TemporaryDirectory(prefix=".gpuyard-verify-", dir=shared) as directory:
            os.chdir(directory)
            os.environ["HOME"] = directory  # nothing stays in the user's own home
            answer["log"] = _LOG_LINE.findall(submit(nodes))
            files = Path(directory).glob("node-*")
            answer["owners"] = {path.read_text().strip(): path.owner() for path in files}
            os.chdir("/")
    except subprocess.CalledProcessError as error:
        lines = f"{error.stdout}\n{error.stderr}".strip().splitlines()
        answer["error"] = lines[-1] if lines else f"{error.cmd[0]} exited with {error.returncode}"
        answer["waits"] = error.returncode in _TIMED_OUT
    except (OSError, KeyError, ValueError, subprocess.TimeoutExpired) as error:
        answer["error"] = str(error)
    json.dump(answer, sys.stdout)


def _submit_with_gpuyard(nodes: str) -> str:
    """Submit with `gpuyard submit`, remove the folder of the job, and return its log."""
    size = ("--nodes", nodes, "--gpus", nodes)
    options = ("--engine", "slurm", "--name", _NAME, "--retries", "0", "--json", *size)
    job = json.loads(_run("gpuyard", "submit", *options, "--", "sh", "-c", _COMMAND))
    handle = job["handle"]
    try:
        _run("gpuyard", "wait", "--wait", f"{_WAIT_SECONDS}s", handle)
        return _run("gpuyard", "logs", handle)
    except subprocess.CalledProcessError as error:
        _run("gpuyard", "cancel", handle)
        if error.returncode not in _TIMED_OUT:
            _raise_last_line(_run("gpuyard", "logs", handle))
        raise
    finally:
        folder = Path(_SITE_FILE.read_text().strip()) / pwd.getpwuid(os.geteuid()).pw_name
        shutil.rmtree(folder / job["uuid"], ignore_errors=True)


def _submit_with_sbatch(nodes: str) -> str:
    step = shlex.join(("srun", "sh", "-c", _COMMAND))
    options = (f"--job-name={_NAME}", "--output=log", f"--nodes={nodes}", "--ntasks-per-node=1")
    wait = ("timeout", str(_WAIT_SECONDS), "sbatch", "--wait", "--quiet")
    try:
        _run(*wait, *options, f"--wrap={step}")
    except subprocess.CalledProcessError:
        _run("scancel", "--quiet", f"--name={_NAME}")
        if Path("log").exists():
            _raise_last_line(Path("log").read_text())
        raise
    return Path("log").read_text()


def _raise_last_line(log: str) -> None:
    if log.strip():
        raise ValueError(log.strip().splitlines()[-1])


def _run(*argv: str) -> str:
    return subprocess.run(
        argv,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=True,
        timeout=_WAIT_SECONDS + 10,
    ).stdout


if __name__ == "__main__":
    main()
