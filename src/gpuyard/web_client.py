"""How a server is asked, and how its answer is read: to the end, up to a bound, and as nothing but JSON."""

import json
import urllib.request
from typing import Any, Protocol


class _Readable(Protocol):
    def read(self, most_bytes: int, /) -> bytes: ...


def opener(*, redirects: bool = False, proxies: bool = True) -> urllib.request.OpenerDirector:
    """For http and https alone, not for files and FTP. A redirect would take a key or a password along elsewhere."""
    made = urllib.request.OpenerDirector()
    made.add_handler(urllib.request.ProxyHandler(None if proxies else {}))
    for handler in (
        urllib.request.HTTPHandler,
        urllib.request.HTTPSHandler,
        urllib.request.HTTPErrorProcessor,
        urllib.request.HTTPDefaultErrorHandler,
        urllib.request.UnknownHandler,
    ):
        made.add_handler(handler())
    if redirects:
        made.add_handler(urllib.request.HTTPRedirectHandler())
    return made


def read_json(answer: _Readable, most_bytes: int) -> Any:
    """ValueError where it is longer, or is no JSON."""
    text = answer.read(most_bytes + 1)
    if len(text) > most_bytes:
        raise ValueError("it is too long")
    return json_of(text)


def json_of(text: str | bytes) -> Any:
    """ValueError for all that is no JSON, and for what is nested so deeply that Python gives up."""
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
