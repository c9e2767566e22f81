"""Lambda Cloud by its public HTTP interface (as of OpenAPI 1.10): instance types, instances, launch, terminate.

The key comes from the environment or from a file that only its user can read. It is sent in a header and nowhere else.
"""

import http.client
import ipaddress
import json
import math
import os
import stat
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gpuyard import files
from gpuyard.deploy.clouds.pace import Pace
from gpuyard.errors import GpuyardError, MissingRequirement, UserMistake
from gpuyard.web_client import opener, read_json

KEY_VARIABLE = "LAMBDA_API_KEY"
ADDRESS_VARIABLE = "GPUYARD_LAMBDA_URL"
HASTE_VARIABLE = "GPUYARD_LAMBDA_HASTE"
_ADDRESS = "https://cloud.lambda.ai/api/v1"
_SECONDS = {"request": 1.0, "launch": 12.0}
_TIMEOUT_SECONDS = 30
_TRIES = 5
POLL_SECONDS = 10.0
_END_POLLS = 60
_MOST_BYTES = 20_000_000
_MOST_PAGES = 1000
_TOO_MANY = 429
_NOT_FOUND = 404
_FAULT = 500
GONE = frozenset({"terminating", "terminated", "preempted"})
_SENTENCES = {
    "global/invalid-api-key": f"Lambda Cloud does not accept the API key; see {KEY_VARIABLE}",
    "global/account-inactive": "the account at Lambda Cloud is inactive: it needs a confirmed address and a way to pay",
    "global/quota-exceeded": "the account's quota at Lambda Cloud is used up",
    "instance-operations/launch/insufficient-capacity": "Lambda Cloud has no capacity",
}


class LambdaRefused(GpuyardError):
    """An answer that says no; `code` is Lambda's own."""

    def __init__(self, sentence: str, code: str, status: int) -> None:
        super().__init__(sentence)
        self.code = code
        self.status = status


class LambdaSilent(GpuyardError):
    """No answer came, so what was asked for may have been done or not."""


@dataclass(frozen=True)
class InstanceType:
    """One that can be rented."""

    name: str
    usd_per_hour: float
    regions: tuple[str, ...]
    """Those that have some now."""


@dataclass(frozen=True)
class Instance:
    """One that is rented."""

    id: str
    name: str
    status: str
    address: str
    private_address: str

    @property
    def ready(self) -> bool:
        return self.status == "active" and bool(self.address)

    def __str__(self) -> str:
        return f"{self.name} (instance {self.id}, {self.status})"


@dataclass(frozen=True)
class LambdaCloud:
    """One account."""

    address: str
    key: str = field(repr=False)
    pace: Pace
    haste: float = 1.0
    """Of waits; below 1 only for a server on this machine."""
    sleep: Callable[[float], None] = time.sleep

    @classmethod
    def of_user(cls) -> "LambdaCloud":
        """As the environment says. Raises where there is no key, or the address is none to send it to."""
        address = os.environ.get(ADDRESS_VARIABLE, _ADDRESS).rstrip("/")
        local = _check_address(address)
        haste = float(os.environ.get(HASTE_VARIABLE, "1")) if local else 1.0
        seconds = {kind: seconds * haste for kind, seconds in _SECONDS.items()}
        pace = Pace(files.home() / "clouds" / "lambda.pace", seconds)
        return cls(address, _key(), pace, haste)

    def instance_types(self) -> dict[str, InstanceType]:
        found = self._ask("GET", "instance-types")["data"]
        with _understood("instance types"):
            return {str(name): _instance_type(name, entry) for name, entry in found.items()}

    def ssh_keys(self) -> list[str]:
        found = self._ask("GET", "ssh-keys")["data"]
        with _understood("ssh keys"):
            return [str(key["name"]) for key in found]

    def instances(self) -> list[Instance]:
        """All that cost something, or will."""
        found: list[Instance] = []
        token = ""
        for _ in range(_MOST_PAGES):
            query = f"?{urllib.parse.urlencode({'page_token': token})}" if token else ""
            page = self._ask("GET", f"instances{query}")
            with _understood("instances"):
                found += [_instance(entry) for entry in page["data"]]
            token = page.get("page_token") or ""
            if not token:
                break
        return [instance for instance in found if instance.status not in GONE]

    def instance(self, identity: str) -> Instance | None:
        """None where there is none any more."""
        try:
            path = f"instances/{urllib.parse.quote(identity, safe='')}"
            entry = self._ask("GET", path)["data"]
        except LambdaRefused as refused:
            if refused.status == _NOT_FOUND:
                return None
            raise
        with _understood("instance"):
            found = _instance(entry)
        return None if found.status in GONE else found

    def named(self, name: str) -> Instance | None:
        return next((one for one in self.instances() if one.name == name), None)

    def launch(self, name: str, instance_type: str, region: str, ssh_key: str) -> str:
        """The new instance's identity. Raises `LambdaSilent` where it may be there all the same."""
        request = {
            "region_name": region,
            "instance_type_name": instance_type,
            "ssh_key_names": [ssh_key],
            "name": name,
        }
        try:
            answer = self._ask("POST", "instance-operations/launch", request, again=False)
            return str(answer["data"]["instance_ids"][0])
        except LambdaRefused as refused:
            if refused.code.endswith("/insufficient-capacity"):
                sentence = f"Lambda Cloud has no {instance_type} in {region} now"
                raise LambdaRefused(sentence, refused.code, refused.status) from None
            raise
        except (KeyError, IndexError, TypeError):
            raise LambdaSilent(
                f"Lambda Cloud did not say which instance it launched as {name}"
            ) from None

    def terminate(self, identities: Sequence[str]) -> None:
        self._ask("POST", "instance-operations/terminate", {"instance_ids": list(identities)})

    def end(self, identity: str) -> None:
        """Terminate it and see that it has; one that is gone already is right."""
        if self.instance(identity) is None:
            return
        self.terminate([identity])
        for _ in range(_END_POLLS):
            if self.instance(identity) is None:
                return
            self.pause(POLL_SECONDS)
        raise GpuyardError(
            f"instance {identity} was asked to terminate and is still there; it costs money"
        )

    def pause(self, seconds: float) -> None:
        self.sleep(seconds * self.haste)

    def _ask(
        self,
        method: str,
        path: str,
        body: Mapping[str, Any] | None = None,
        *,
        again: bool = True,
    ) -> dict[str, Any]:
        """Tries again after 429, and after faults of the service where asking twice does no harm."""
        kinds = ("request", "launch") if path.endswith("/launch") else ("request",)
        for tried in range(_TRIES):
            self.pace.wait(*kinds)
            try:
                return self._once(method, path, body)
            except LambdaRefused as refused:
                if refused.status != _TOO_MANY or tried == _TRIES - 1:
                    raise
            except LambdaSilent:
                if not again or tried == _TRIES - 1:
                    raise
            self.pause(2.0**tried)
        raise AssertionError("unreachable")

    def _once(self, method: str, path: str, body: Mapping[str, Any] | None) -> dict[str, Any]:
        request = urllib.request.Request(  # noqa: S310  the address was checked
            f"{self.address}/{path}",
            data=None if body is None else json.dumps(body).encode("utf-8"),
            method=method,
            headers={
                "Authorization": f"Bearer {self.key}",
                "Accept": "application/json",
                "Content-Type": "application/json",
            },
        )
        what = f"{method} {path}"
        try:
            timeout = max(2.0, _TIMEOUT_SECONDS * self.haste)
            with opener().open(request, timeout=timeout) as answer:
                document = read_json(answer, _MOST_BYTES)
        except urllib.error.HTTPError as refused:
            with refused:
                raise _refusal(what, refused) from None
        except (urllib.error.URLError, http.client.HTTPException, OSError) as error:
            reason = getattr(error, "reason", None) or error
            raise LambdaSilent(f"Lambda Cloud does not answer ({what}): {reason}") from None
        except ValueError:
            raise LambdaSilent(f"Lambda Cloud's answer to {what} is not JSON") from None
        if not isinstance(document, dict) or "data" not in document:
            raise LambdaSilent(f"Lambda Cloud's answer to {what} has no data")
        return document


def _refusal(what: str, refused: urllib.error.HTTPError) -> GpuyardError:
    try:
        error = read_json(refused, _MOST_BYTES)["error"]
        code, message = str(error["code"]), str(error["message"])
    except (ValueError, KeyError, TypeError, OSError):
        code, message = "", str(refused.reason)
    if refused.code >= _FAULT:
        return LambdaSilent(f"Lambda Cloud has a fault ({what}): {refused.code} {message}")
    if refused.code == _TOO_MANY:
        return LambdaRefused(f"Lambda Cloud is asked too often ({what})", code, refused.code)
    sentence = _SENTENCES.get(code, f"Lambda Cloud refuses {what}: {message}")
    return LambdaRefused(sentence, code, refused.code)


@contextmanager
def _understood(what: str) -> Iterator[None]:
    """An answer that is not what the description of the interface says."""
    try:
        yield
    except (KeyError, TypeError, ValueError, AttributeError):
        raise GpuyardError(f"Lambda Cloud's answer about {what} can't be understood") from None


def _instance_type(name: str, entry: Mapping[str, Any]) -> InstanceType:
    cents = float(entry["instance_type"]["price_cents_per_hour"])
    if not 0 <= cents < math.inf:
        raise ValueError(cents)
    regions = tuple(str(region["name"]) for region in entry["regions_with_capacity_available"])
    return InstanceType(str(name), cents / 100, regions)


def _instance(entry: Mapping[str, Any]) -> Instance:
    return Instance(
        str(entry["id"]),
        str(entry.get("name") or ""),
        str(entry["status"]),
        _address(entry.get("ip")),
        _address(entry.get("private_ip")),
    )


def _address(text: Any) -> str:
    """It comes to stand in ssh's configuration, so it is nothing but an address."""
    return str(ipaddress.ip_address(text)) if text else ""


def _check_address(address: str) -> bool:
    """Whether it is on this machine; the key is sent nowhere else without encryption."""
    try:
        parts = urllib.parse.urlsplit(address)
        local = parts.hostname in ("127.0.0.1", "::1", "localhost")
    except ValueError as error:
        raise UserMistake(f"{ADDRESS_VARIABLE}: {address} is no address: {error}") from None
    if parts.scheme != "https" and not (local and parts.scheme == "http"):
        raise UserMistake(f"{ADDRESS_VARIABLE}: expected an https address, got {address!r}")
    return local


def key_file() -> Path:
    return files.home() / "keys" / "lambda"


def _key() -> str:
    named = os.environ.get(KEY_VARIABLE, "").strip()
    path = key_file()
    if not named and not path.exists():
        raise MissingRequirement(
            f"Lambda Cloud needs an API key: set {KEY_VARIABLE}, or write it into {path} (mode 0600)"
        )
    if not named:
        status = path.stat()
        if status.st_uid != os.getuid() or stat.S_IMODE(status.st_mode) & 0o077:
            raise UserMistake(f"{path}: others may read this key; say: chmod 600 {path}")
        named = files.read_text(path, most_bytes=10_000).strip()
    if not named.isascii() or not named.isprintable() or not named or " " in named:
        raise UserMistake("the API key for Lambda Cloud has characters that none has")
    return named
