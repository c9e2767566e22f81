"""The script that a failed `eval "$(gpuyard lease … --export)"` gets: it hides all GPUs and sets the exit status.

Without it, the shell would see the GPUs of everybody. It covers every failure, also mistakes that typer finds before the
command runs, so the entry point calls it.
"""

import contextlib
import os
import sys

AMD_DRIVER = "/dev/kfd"
_NO_DEVICE = -1  # CUDA, HIP, and ROCr read a list up to the first number that no device has


def refuse_shell(words: list[str], error: BaseException) -> None:
    """Print the script if the command line that failed was to be evaluated by a shell."""
    status = _get_exit_status(error)
    if status == 0 or not _is_for_shell(words):
        return
    with contextlib.suppress(OSError):  # the shell may have gone
        sys.stdout.write(format_refusal(status))
        sys.stdout.flush()
    if not _has_lease():
        sys.stderr.write("gpuyard: this shell has no lease and sees no GPU\n")


def format_refusal(status: int) -> str:
    """Return the script. A shell that already has a lease keeps its GPUs."""
    names = ["CUDA_VISIBLE_DEVICES"]
    if os.path.exists(AMD_DRIVER):  # noqa: PTH110 - pathlib is slower to import
        names += ["HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES"]
    hide = "" if _has_lease() else "".join(f"export {name}={_NO_DEVICE}\n" for name in names)
    return f"{hide}(exit {status})\n"


def _has_lease() -> bool:
    from gpuyard.share.processes import LEASE_VARIABLE

    return bool(os.environ.get(LEASE_VARIABLE))


def _get_exit_status(error: BaseException) -> int:
    if isinstance(error, SystemExit):
        return error.code if isinstance(error.code, int) else int(error.code is not None)
    return 130 if isinstance(error, KeyboardInterrupt) else getattr(error, "exit_status", 1)


def _is_for_shell(words: list[str]) -> bool:
    """Return whether a line asks for `--export`, also with a typo in the option or in the command."""
    if "--" in words:
        words = words[: words.index("--")]
    if "--export" in words:
        return True
    from difflib import get_close_matches

    return "lease" in words and bool(get_close_matches("--export", words, cutoff=0.8))
