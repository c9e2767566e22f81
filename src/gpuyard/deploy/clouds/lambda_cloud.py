"""Lambda Cloud's public HTTP API (as of OpenAPI 1.10): instance types, instances, launch, and terminate.

The API key comes from the environment or from a file that only its user can read. It is sent only in a header.
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
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gpuyard import files
from gpuyard.deploy.clouds.rate_limit import RateLimiter
from gpuyard.errors import GpuyardError, MissingRequirement, UserMistake
from gpuyard.web_client import build_opener, call_within, read_json

KEY_VARIABLE = "LAMBDA_API_KEY"
ADDRESS_VARIABLE = "GPUYARD_LAMBDA_URL"
WAIT_SCALE_VARIABLE = "GPUYARD_LAMBDA_WAIT_SCALE"
_ADDRESS = "https://cloud.lambda.ai/api/v1"
_INTERVAL_SECONDS = {"request": 1.0, "launch": 12.0}
_TIMEOUT_SECONDS = 30
_TRIES = 5
POLL_SECONDS = 10.0
_TERMINATE_POLLS = 60
_MAX_BYTES = 20_000_000
_MAX_PAGES = 1000
_TOO_MANY_REQUESTS = 429
_NOT_FOUND = 404
_SERVER_ERROR = 500
_FINAL_STATUSES = frozenset({"terminating", "terminated", "preempted"})
_MESSAGES = {
    "global/invalid-api-key": f"Lambda Cloud rejected the API key; check {KEY_VARIABLE}",
    "global/account-inactive": "the Lambda Cloud account is inactive: it needs a confirmed address and a payment method",
    "global/quota-exceeded": "the quota of the Lambda Cloud account is used up; ask Lambda for a higher one",
    "instance-operations/launch/insufficient-capacity": "Lambda Cloud has no capacity",
}


class LambdaRequestError(GpuyardError):
    """A request that Lambda Cloud rejected; `code` is Lambda's error code."""

    def __init__(self, message: str, code: str, status: int) -> None:
        super().__init__(message)
        self.code = code
        self.status = status


class LambdaNoResponse(GpuyardError):
    """A request without a usable response, so it is unknown whether Lambda Cloud carried it out."""


@dataclass(frozen=True)
class InstanceType:
    """An instance type that Lambda Cloud offers."""

    name: str
    usd_per_hour: float
    regions: tuple[str, ...]
    """The regions that have capacity now."""


@dataclass(frozen=True)
class Instance:
    """A rented instance."""

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
    """A client that acts for one account."""

    address: str
    key: str = field(repr=False)
    rate_limiter: RateLimiter
    wait_scale: float = 1.0
    """Factor for all waits; below 1 only for a server on this machine."""
    sleep: Callable[[float], None] = time.sleep

    @classmethod
    def from_environment(cls) -> "LambdaCloud":
        """Read the address and the key. Raises if there is no key, or the address is not safe to send it to."""
        address = os.environ.get(ADDRESS_VARIABLE, _ADDRESS).rstrip("/")
        local = _check_address(address)
        wait_scale = float(os.environ.get(WAIT_SCALE_VARIABLE, "1")) if local else 1.0
        intervals = {kind: seconds * wait_scale for kind, seconds in _INTERVAL_SECONDS.items()}
        rate_limiter = RateLimiter(files.home() / "clouds" / "lambda-requests.json", intervals)
        return cls(address, _read_key(), rate_limiter, wait_scale)

    def instance_types(self) -> dict[str, InstanceType]:
        entries = self._request("GET", "instance-types")["data"]
        with _describe_parse_errors("instance types"):
            return {str(name): _parse_instance_type(name, e) for name, e in entries.items()}

    def ssh_keys(self) -> list[str]:
        entries = self._request("GET", "ssh-keys")["data"]
        with _describe_parse_errors("ssh keys"):
            return [str(entry["name"]) for entry in entries]

    def instances(self) -> list[Instance]:
        """Return all instances that cost money, or soon will."""
        instances: list[Instance] = []
        token = ""
        for _ in range(_MAX_PAGES):
            query = f"?{urllib.parse.urlencode({'page_token': token})}" if token else ""
            page = self._request("GET", f"instances{query}")
            with _describe_parse_errors("instances"):
                instances += [_parse_instance(entry) for entry in page["data"]]
            token = page.get("page_token") or ""
            if not token:
                break
        return [instance for instance in instances if instance.status not in _FINAL_STATUSES]

    def instance(self, instance_id: str) -> Instance | None:
        """Return None if the instance no longer exists."""
        try:
            path = f"instances/{urllib.parse.quote(instance_id, safe='')}"
            entry = self._request("GET", path)["data"]
        except LambdaRequestError as error:
            if error.status == _NOT_FOUND:
                return None
            raise
        with _describe_parse_errors("an instance"):
            instance = _parse_instance(entry)
        return None if instance.status in _FINAL_STATUSES else instance

    def find_by_name(self, name: str) -> Instance | None:
        return next((instance for instance in self.instances() if instance.name == name), None)

    def launch(self, name: str, instance_type: str, region: str, ssh_key: str) -> str:
        """Launch an instance and return its id. Raises `LambdaNoResponse` if it may exist nevertheless."""
        request = {
            "region_name": region,
            "instance_type_name": instance_type,
            "ssh_key_names": [ssh_key],
            "name": name,
        }
        try:
            response = self._request("POST", "instance-operations/launch", request, retry=False)
            return str(response["data"]["instance_ids"][0])
        except LambdaRequestError as error:
            if error.code.endswith("/insufficient-capacity"):
                message = f"Lambda Cloud has no {instance_type} in {region} now; try another region"
                raise LambdaRequestError(message, error.code, error.status) from None
            raise
        except (KeyError, IndexError, TypeError):
            raise LambdaNoResponse(
                f"Lambda Cloud did not return the id of the instance that it launched as {name}"
            ) from None

    def terminate(self, instance_id: str) -> None:
        """Terminate an instance and wait until it is gone. Does nothing if it does not exist."""
        if self.instance(instance_id) is None:
            return
        self._request("POST", "instance-operations/terminate", {"instance_ids": [instance_id]})
        for _ in range(_TERMINATE_POLLS):
            if self.instance(instance_id) is None:
                return
            self.pause(POLL_SECONDS)
        raise GpuyardError(
            f"instance {instance_id} still exists and costs money, although gpuyard asked Lambda Cloud to terminate it; "
            "terminate it in Lambda's console"
        )

    def pause(self, seconds: float) -> None:
        self.sleep(seconds * self.wait_scale)

    def _request(
        self,
        method: str,
        path: str,
        body: Mapping[str, Any] | None = None,
        *,
        retry: bool = True,
    ) -> dict[str, Any]:
        """Send a request; retry after 429, and after server errors unless repeating it could do harm."""
        kinds = ("request", "launch") if path.endswith("/launch") else ("request",)
        for attempt in range(_TRIES):
            self.rate_limiter.wait(*kinds)
            sent_at = time.monotonic()
            try:
                return self._send(method, path, body)
            except LambdaRequestError as error:
                if error.status != _TOO_MANY_REQUESTS or attempt == _TRIES - 1:
                    raise
            except LambdaNoResponse:
                was_slow = time.monotonic() - sent_at > self._max_seconds
                if not retry or was_slow or attempt == _TRIES - 1:
                    raise
            self.pause(2.0**attempt)
        raise AssertionError("unreachable")

    @property
    def _max_seconds(self) -> float:
        """The time for one complete response."""
        return max(2.0, _TIMEOUT_SECONDS * self.wait_scale)

    def _send(self, method: str, path: str, body: Mapping[str, Any] | None) -> dict[str, Any]:
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

        def receive() -> Any:
            try:
                with build_opener().open(request, timeout=self._max_seconds) as response:
                    return read_json(response, _MAX_BYTES)
            except urllib.error.HTTPError as response:
                with response:
                    raise _error_from_response(what, response) from None

        try:
            document = call_within(self._max_seconds, receive)
        except (urllib.error.URLError, http.client.HTTPException, OSError) as error:
            reason = getattr(error, "reason", None) or error
            raise LambdaNoResponse(f"Lambda Cloud is unreachable ({what}): {reason}") from None
        except ValueError:
            raise LambdaNoResponse(f"Lambda Cloud's response to {what} is not JSON") from None
        if not isinstance(document, dict) or "data" not in document:
            raise LambdaNoResponse(f"Lambda Cloud's response to {what} has no data")
        return document


def _error_from_response(what: str, response: urllib.error.HTTPError) -> GpuyardError:
    try:
        error = read_json(response, _MAX_BYTES)["error"]
        code, message = str(error["code"]), str(error["message"])
    except (ValueError, KeyError, TypeError, OSError):
        code, message = "", str(response.reason)
    if response.code >= _SERVER_ERROR:
        return LambdaNoResponse(f"Lambda Cloud failed ({what}): {response.code} {message}")
    if response.code == _TOO_MANY_REQUESTS:
        message = (
            f"Lambda Cloud received too many requests ({what}); wait a minute and run it again"
        )
        return LambdaRequestError(message, code, response.code)
    message = _MESSAGES.get(code, f"Lambda Cloud rejected {what}: {message}")
    return LambdaRequestError(message, code, response.code)


@contextmanager
def _describe_parse_errors(what: str) -> Iterator[None]:
    """Turn an error while parsing a response into a message that names the part."""
    try:
        yield
    except (KeyError, TypeError, ValueError, AttributeError):
        raise GpuyardError(f"cannot parse Lambda Cloud's response about {what}") from None


def _parse_instance_type(name: str, entry: Mapping[str, Any]) -> InstanceType:
    cents = float(entry["instance_type"]["price_cents_per_hour"])
    if not 0 <= cents < math.inf:
        raise ValueError(cents)
    regions = tuple(str(region["name"]) for region in entry["regions_with_capacity_available"])
    return InstanceType(str(name), cents / 100, regions)


def _parse_instance(entry: Mapping[str, Any]) -> Instance:
    return Instance(
        str(entry["id"]),
        str(entry.get("name") or ""),
        str(entry["status"]),
        _parse_address(entry.get("ip")),
        _parse_address(entry.get("private_ip")),
    )


def _parse_address(text: Any) -> str:
    """Accept only an IP address, because it is written to an ssh configuration."""
    return str(ipaddress.ip_address(text)) if text else ""


def _check_address(address: str) -> bool:
    """Return whether the address is on this machine. Raises if the key would leave it unencrypted."""
    try:
        parts = urllib.parse.urlsplit(address)
        local = parts.hostname in ("127.0.0.1", "::1", "localhost")
    except ValueError as error:
        raise UserMistake(f"{ADDRESS_VARIABLE}: {address} is not a URL: {error}") from None
    if parts.scheme != "https" and not (local and parts.scheme == "http"):
        raise UserMistake(f"{ADDRESS_VARIABLE}: expected an https URL, got {address!r}")
    return local


def key_file() -> Path:
    return files.home() / "keys" / "lambda"


def _read_key() -> str:
    key = os.environ.get(KEY_VARIABLE, "").strip()
    path = key_file()
    if not key and not path.exists():
        raise MissingRequirement(
            f"Lambda Cloud needs an API key: set {KEY_VARIABLE}, or write it to {path} (mode 0600)"
        )
    if not key:
        status = path.stat()
        if status.st_uid != os.getuid() or stat.S_IMODE(status.st_mode) & 0o077:
            raise UserMistake(f"{path}: others can read this key; run: chmod 600 {path}")
        key = files.read_text(path, max_bytes=10_000).strip()
    if not key.isascii() or not key.isprintable() or not key or " " in key:
        raise UserMistake(
            "the API key for Lambda Cloud contains invalid characters; copy it again from Lambda's console"
        )
    return key
