"""Send HTTP requests, and read responses completely, up to a limit of time and size, and only as JSON."""

import contextvars
import json
import queue
import threading
import urllib.request
from collections.abc import Callable
from typing import Any, Protocol, TypeVar, cast

_Result = TypeVar("_Result")


class _Readable(Protocol):
    def read(self, max_bytes: int, /) -> bytes: ...


def call_within(seconds: float, call: Callable[[], _Result]) -> _Result:
    """Return the result of a function that uses the network; raise TimeoutError if it takes longer in all.

    A socket's own time-out starts again with each byte, so a server that sends one byte per second could hold its client
    forever. The function runs in a thread, which is abandoned at its deadline and ends with this process.
    """
    results: queue.SimpleQueue[tuple[_Result | None, BaseException | None]] = queue.SimpleQueue()

    def run() -> None:
        try:
            results.put((call(), None))
        except BaseException as error:  # noqa: BLE001 - it is raised in the calling thread
            results.put((None, error))

    threading.Thread(target=contextvars.copy_context().run, args=(run,), daemon=True).start()
    try:
        result, error = results.get(timeout=seconds)
    except queue.Empty:
        raise TimeoutError(f"no complete answer within {seconds:g} s") from None
    if error is not None:
        try:
            raise error
        finally:
            del error  # otherwise it and its traceback keep each other, and the connection open
    return cast("_Result", result)


def build_opener(*, redirects: bool = False, proxies: bool = True) -> urllib.request.OpenerDirector:
    """Return an opener for http and https only, not for files and FTP.

    It follows no redirects by default, because a redirect could send a key or password to another server.
    """
    opener = urllib.request.OpenerDirector()
    opener.add_handler(urllib.request.ProxyHandler(None if proxies else {}))
    for handler in (
        urllib.request.HTTPHandler,
        urllib.request.HTTPSHandler,
        urllib.request.HTTPErrorProcessor,
        urllib.request.HTTPDefaultErrorHandler,
        urllib.request.UnknownHandler,
    ):
        opener.add_handler(handler())
    if redirects:
        opener.add_handler(urllib.request.HTTPRedirectHandler())
    return opener


def read_json(response: _Readable, max_bytes: int) -> Any:
    """Read a response as JSON. Raise ValueError if it is too long or is not JSON."""
    text = response.read(max_bytes + 1)
    if len(text) > max_bytes:
        raise ValueError("it is too long")
    return parse_json(text)


def parse_json(text: str | bytes) -> Any:
    """Parse JSON. Raise ValueError if the text is not JSON or is nested too deeply for Python."""
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
