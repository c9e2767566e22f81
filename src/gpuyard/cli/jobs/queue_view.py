"""The effect of `gpuyard queue` without other words: the list of jobs."""

from gpuyard.cli.show import show
from gpuyard.errors import GpuyardError, UserMistake


def show_queue(
    *,
    all_: bool = False,
    last: int | None = None,
    everyone: bool = False,
    json_output: bool = False,
) -> None:
    """Show the open jobs of all engines that can be used here, and the ended ones that were asked for.

    With `everyone`, show the open jobs of all users on this machine instead.
    """
    if everyone:
        if all_ or last is not None:
            raise UserMistake("--everyone shows only open jobs, so use it without --all and --last")
        _show_everyone(json_output=json_output)
        return
    from gpuyard.jobs.engines.base import Availability, check_engines, load_engine, select_newest
    from gpuyard.jobs.job import JobStatus
    from gpuyard.report.answers.jobs.queue import queue_answer

    if all_ and last is not None:
        raise UserMistake("use either --all or --last")
    ended = None if all_ else last or 0
    jobs: list[JobStatus] = []
    engines: list[tuple[str, Availability]] = []
    silent: list[str] = []
    for name, availability in check_engines():
        if availability.ok or availability.down:
            try:
                jobs += load_engine(name).list(ended)
            except GpuyardError as error:
                silent.append(name)
                engines.append((name, Availability(False, str(error))))
                continue
        engines.append((name, availability))
    answer = queue_answer(select_newest(jobs, ended), engines, silent, includes_ended=ended != 0)
    show(answer, json_output=json_output)


def _show_everyone(*, json_output: bool) -> None:
    from gpuyard.report.answers.jobs.queue import everyone_answer
    from gpuyard.share.client import open_reader
    from gpuyard.share.clock import Clock
    from gpuyard.share.views import open_jobs_document

    client = open_reader()
    client.config.check_scheduler("squeue")
    document = open_jobs_document(client.state(), Clock())
    client.close()
    show(everyone_answer(document), json_output=json_output)
