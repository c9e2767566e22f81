"""The service of a share that several users use: it owns the store, and does for each caller what the kernel says
that they may. It keeps nothing: killed and started again, it goes on."""

import contextlib
import fcntl
import json
import os
import socket
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from gpuyard.errors import GpuyardError, UserMistake
from gpuyard.share.service import wire
from gpuyard.share.service.caller import Caller, peer
from gpuyard.share.service.wire import SOCKET
from gpuyard.share.store.broker import DATABASE, Broker
from gpuyard.share.store.database import close_to_others
from gpuyard.share.store.lease import LeaseRequest
from gpuyard.share.store.past_use import PastUse
from gpuyard.share.turns.reservations import Wish, indices
from gpuyard.share.turns.rules import Rules
from gpuyard.share.watch.gpus import gpu_source

_MOST_OF_ONE_USER = 128  # connections at a time
_MOST_ROWS = 1000  # of the history in one answer, which has room for them however long they are
_IDLE_SECONDS = 10.0
_LOOK_SECONDS = 2.0
_SAMPLE_SECONDS = 60.0
_PAUSE_SECONDS = 0.1
_LOCK = "service.lock"
_LAST_MOMENT = 32_503_680_000.0  # the year 3000


def serve(directory: Path, ready: Callable[[], None] = lambda: None) -> None:
    """Answer until the socket is taken away; raises where another service answers already."""
    with _only_one(directory), socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listening:
        (directory / SOCKET).unlink(missing_ok=True)
        with wire.socket_path(directory) as path:
            listening.bind(path)
        (directory / SOCKET).chmod(0o666)  # who may do what is decided by who they are
        listening.listen(512)
        listening.settimeout(_LOOK_SECONDS)
        identity = _identity(directory)
        close_to_others(directory / DATABASE)
        # what is wrong with the store is said now; open all the time, its log stays and is not folded in at each close
        store = Broker(directory)
        ready()
        crowd = _Crowd(directory)
        sampled = 0.0
        while _identity(directory) == identity:
            if time.monotonic() - sampled >= _SAMPLE_SECONDS:
                sampled = time.monotonic()
                with contextlib.suppress(GpuyardError):  # whoever asks is told
                    another = Broker(directory)  # it may have been made anew
                    store.close()
                    store = another
                    store.record_utilisation(gpu_source(directory, store.config).read())
            try:
                connection, _ = listening.accept()
            except TimeoutError:
                continue
            except OSError:  # they have gone, or too many are here
                time.sleep(_PAUSE_SECONDS)
                continue
            crowd.admit(connection)
        store.close()


def is_running(directory: Path) -> bool:
    """Whether a service answers."""
    try:
        wire.call(directory, "state")
    except GpuyardError:
        return False
    return True


class _Crowd:
    """Those who are being answered, each by a thread; nobody can take all of them."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._past = PastUse()
        self._by_user: Counter[int] = Counter()
        self._lock = threading.Lock()

    def admit(self, connection: socket.socket) -> None:
        try:
            caller = peer(connection)
        except OSError:
            connection.close()
            return
        with self._lock:
            if self._by_user[caller.uid] >= _MOST_OF_ONE_USER:
                connection.close()
                return
            self._by_user[caller.uid] += 1
        threading.Thread(target=self._answer, args=(connection, caller), daemon=True).start()

    def _answer(self, connection: socket.socket, caller: Caller) -> None:
        try:
            with connection:
                connection.settimeout(_IDLE_SECONDS)
                _answer(self._directory, connection, caller, self._past)
        except OSError:
            pass  # the caller has gone
        finally:
            with self._lock:
                self._by_user[caller.uid] -= 1


def _answer(directory: Path, connection: socket.socket, caller: Caller, past: PastUse) -> None:
    line = wire.receive(connection, wire.MOST_REQUEST_BYTES)
    lock = None
    try:
        broker = Broker(directory, past=past)
        try:
            answer, lock = perform(broker, caller, _request(line))
        finally:
            broker.close()
        wire.send(connection, {"answer": wire.written(answer)}, lock)
    except GpuyardError as error:
        wire.send(connection, {"error": str(error), "status": error.exit_status})
    except OSError:
        raise
    except Exception as error:  # noqa: BLE001 - one caller's fault must not end the service
        sys.stderr.write(f"gpuyard: {type(error).__name__}: {error}\n")
        wire.send(connection, {"error": "the lease service failed; its log says why", "status": 1})
    finally:
        if lock is not None:
            os.close(lock)  # from here on the caller alone holds it


def _request(line: bytes) -> dict[str, Any]:
    try:
        document = json.loads(line)
        json.dumps(
            document, ensure_ascii=False
        ).encode()  # half a character has no place in a store
    except (ValueError, RecursionError):
        document = None
    if not isinstance(document, dict):
        raise UserMistake("this is not a request; it is one JSON object on one line")
    return document


def perform(broker: Broker, caller: Caller, document: dict[str, Any]) -> tuple[object, int | None]:
    """One operation for a caller, as they wrote it."""
    what = document.get("do")
    if what == "ask":
        return broker.ask(caller, LeaseRequest.from_document(document.get("request")))
    if not isinstance(what, str) or what not in _OPERATIONS:
        raise UserMistake("this version of gpuyard knows no such operation")
    return _OPERATIONS[what](broker, caller, document), None


def _id(document: dict[str, Any]) -> str:
    id_ = document.get("id")
    if not isinstance(id_, str):
        raise UserMistake("this request names no lease and no reservation")
    return id_


def _number(document: dict[str, Any], name: str, least: int) -> int:
    number = document.get(name)
    if type(number) is not int or not least <= number < 2**63:
        raise UserMistake("this request has a value of the wrong type")
    return number


def _drain(broker: Broker, caller: Caller, document: dict[str, Any]) -> object:
    until = document.get("until")
    if not isinstance(until, int | float | None) or (until and not 0 < until < _LAST_MOMENT):
        raise UserMistake("this request has a value of the wrong type")
    return broker.drain(caller, indices(document.get("gpus", ())), until)


_OPERATIONS: dict[str, Callable[[Broker, Caller, dict[str, Any]], object]] = {
    "state": lambda broker, _, __: broker.state(),
    "history": lambda broker, _, asked: broker.history(_number(asked, "after", 0), _MOST_ROWS),
    "claim": lambda broker, caller, asked: broker.claim(caller, _id(asked)),
    "enclose": lambda broker, caller, asked: broker.enclose(
        caller, _id(asked), _number(asked, "pid", 1)
    ),
    "leave": lambda broker, caller, asked: broker.leave(caller, _id(asked)),
    "finish": lambda broker, caller, asked: broker.finish(
        caller, _id(asked), childless=asked.get("childless") is True
    ),
    "release": lambda broker, caller, asked: broker.release(caller, _id(asked)),
    "reserve": lambda broker, caller, asked: broker.reserve(
        caller, Wish.from_document(asked.get("wish"))
    ),
    "cancel": lambda broker, caller, asked: broker.cancel(caller, _id(asked)),
    "drain": _drain,
    "set_rules": lambda broker, caller, asked: broker.set_rules(
        caller, Rules.from_document(asked.get("rules"))
    ),
    "resume": lambda broker, caller, _: broker.resume(caller),
}


@contextlib.contextmanager
def _only_one(directory: Path) -> Iterator[None]:
    handle = os.open(directory / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise GpuyardError(f"a lease service runs already in {directory}") from None
        yield
    finally:
        os.close(handle)


def _identity(directory: Path) -> tuple[int, int] | None:
    try:
        status = (directory / SOCKET).stat()
    except OSError:
        return None
    return status.st_dev, status.st_ino
