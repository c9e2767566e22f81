"""`gpuyard who`: who holds which GPU, and who waits."""

from gpuyard.cli.output import JsonOption, show


def who(*, json_output: JsonOption = False) -> None:
    """Show each GPU with its leases, and the queue.

    Example: gpuyard who
    """
    from gpuyard.report.answers.share.who import who_answer
    from gpuyard.share.clock import Clock
    from gpuyard.share.desk import open_to_look
    from gpuyard.share.views import who_document

    desk = open_to_look()
    document = who_document(desk.config, desk.state(), Clock())
    show(who_answer(document), json_output=json_output)
