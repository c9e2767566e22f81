"""Find a job by its handle, or by the number alone that people remember."""

from gpuyard.errors import GpuyardError, UserMistake
from gpuyard.jobs.engines.base import check_engines, load_engine
from gpuyard.jobs.job import Handle


def find_handle(text: str) -> Handle:
    """Parse a handle like `local://17`; a bare number is a job that exactly one of the engines here knows."""
    if not text.isdecimal():
        return Handle.parse(text)
    matches: list[Handle] = []
    for name, availability in check_engines():
        if availability.ok:
            try:
                matches += load_engine(name).find_number(text)
            except GpuyardError:  # `gpuyard queue` says why an engine does not answer
                continue
    if len(matches) == 1:
        return matches[0]
    if matches:
        handles = ", ".join(map(str, matches))
        raise UserMistake(f"several jobs have the number {text}; choose one of: {handles}")
    raise UserMistake(f"no job has the number {text}; `gpuyard queue --all` lists all of yours")
