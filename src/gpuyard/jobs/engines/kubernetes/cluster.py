"""Access to one cluster through the official Python client, with time-outs and readable errors.

The client's own error messages contain request headers or the server's whole answer. Only the message of the API's Status
is shown, without the kubeconfig's secrets.
"""

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from gpuyard.errors import GpuyardError, MissingRequirement, NoResponse, UserMistake, quote
from gpuyard.jobs.engines.kubernetes.availability import (
    SERVICE_ACCOUNT,
    find_config_files,
    find_problem,
)
from gpuyard.jobs.engines.kubernetes.draft import Manifest
from gpuyard.jobs.engines.kubernetes.kinds.base import Resource
from gpuyard.jobs.engines.kubernetes.objects import MalformedObject, check_object, check_objects
from gpuyard.jobs.engines.kubernetes.server import ServerVersion
from gpuyard.printable import make_printable
from gpuyard.web_client import call_within, parse_json

IN_CLUSTER = "in-cluster"
CALL_SECONDS = (5.0, 20.0)  # to connect, and for the answer
_LOG_IDLE_SECONDS = 300.0  # without output in a followed log before its pod is checked again
_MAX_MESSAGE = 500
_STATUS_MESSAGES = {
    401: "the cluster does not accept your credentials (401); log in again, as for kubectl",
    403: "your account is not allowed to do this (403)",
    404: "object not found (404)",
    409: "an object with this name already exists (409)",
    422: "the manifest is invalid (422)",
    429: "the cluster is overloaded (429); try again later",
}
_NO_TLS = "does not use TLS, or its certificate is not trusted by your kubeconfig"


class ApiError(GpuyardError):
    """The API returned an error status."""

    def __init__(self, status: int, message: str) -> None:
        self.status, self.message = status, message
        summary = _STATUS_MESSAGES.get(status, f"the cluster returned status {status}")
        super().__init__(f"{summary}: {message}" if message else summary)


class LogTimeout(NoResponse):
    """A followed log had no new output for a long time; more may follow."""


def resolve_context(context: str | None) -> tuple[str | None, str]:
    """Return the context's name and namespace, or the defaults if there is no kubeconfig."""
    if find_problem() is not None:
        return context, "default"
    if not find_config_files():
        return IN_CLUSTER, _pod_namespace()
    contexts, current = _use_config(
        lambda config: config.list_kube_config_contexts(_config_argument())
    )
    by_name = {entry["name"]: entry for entry in contexts}
    chosen = current if context is None else by_name.get(context)
    if chosen is None:
        names = ", ".join(sorted(by_name)) or "none"
        raise UserMistake(
            f"context {quote(str(context))} not found in your kubeconfig; it has: {names}"
        )
    return chosen["name"], chosen["context"].get("namespace") or "default"


class PodList(NamedTuple):
    """The pods of a namespace with some labels."""

    pods: Sequence[Manifest]
    malformed: Sequence[MalformedObject]
    version: str
    """The resource version from which to watch."""


class KubernetesCluster:
    """A connection to one cluster."""

    def __init__(self, context: str | None) -> None:
        if (reason := find_problem()) is not None:
            raise MissingRequirement(reason)
        from kubernetes import client
        from urllib3 import disable_warnings
        from urllib3.exceptions import InsecureRequestWarning
        from urllib3.util.retry import Retry

        configuration = client.Configuration()
        if find_config_files() and context != IN_CLUSTER:
            _use_config(
                lambda config: config.load_kube_config(
                    _config_argument(),
                    context=context,
                    client_configuration=configuration,
                    persist_config=False,
                )
            )
        else:
            _use_config(lambda config: config.load_incluster_config(configuration))
        configuration.retries = Retry(
            total=0
        )  # the time-out is for the whole call, not for each of four attempts
        self.address = str(configuration.host)
        self.verified = bool(configuration.verify_ssl) or not self.address.startswith("https:")
        """True if the server's certificate is checked; if not, urllib3 would print a warning for each request."""
        if not self.verified:
            disable_warnings(InsecureRequestWarning)
        self._configuration = configuration
        api = client.ApiClient(configuration)
        self._core: Any = client.CoreV1Api(api)
        self._custom: Any = client.CustomObjectsApi(api)
        self._version: Any = client.VersionApi(api)

    def version(self) -> ServerVersion:
        """Return the server's version; it is unknown if the server does not tell it to this user."""
        options = {"_preload_content": False, "_request_timeout": CALL_SECONDS}
        try:
            answer = self._get_json(lambda: self._version.get_code(**options))
        except ApiError:
            return ServerVersion()
        return ServerVersion.parse(answer.get("gitVersion"))

    def create(self, resource: Resource, namespace: str, manifest: Manifest) -> Manifest:
        """Create an object; the API rejects unknown fields instead of dropping them."""
        strict = {"field_manager": "gpuyard", "field_validation": "Strict"}
        answer = self._call_resource(resource, "create", namespace, body=manifest, **strict)
        return check_object(resource.kind, answer, manifest["metadata"]["name"])

    def get(self, resource: Resource, namespace: str, name: str) -> Manifest:
        """Return an object; raise `ApiError` with status 404 if it does not exist, or `MalformedObject`."""
        verb = "get" if resource.group else "read"
        answer = self._call_resource(resource, verb, namespace, name=name)
        return check_object(resource.kind, answer, name)

    def list(
        self, resource: Resource, namespace: str, selector: str
    ) -> tuple[Sequence[Manifest], Sequence[MalformedObject]]:
        """Return the objects with these labels, and an error for each that is not valid."""
        answer = self._call_resource(resource, "list", namespace, label_selector=selector)
        return check_objects(resource.kind, answer.get("items"))

    def delete(self, resource: Resource, namespace: str, name: str) -> None:
        """Delete an object after everything that belongs to it."""
        self._call_resource(
            resource, "delete", namespace, name=name, body={"propagationPolicy": "Foreground"}
        )

    def list_pods(self, namespace: str, selector: str) -> PodList:
        """Return the pods, oldest first."""
        answer = self._get_json(
            lambda: self._core.list_namespaced_pod(
                namespace,
                label_selector=selector,
                _preload_content=False,
                _request_timeout=CALL_SECONDS,
            )
        )
        pods, errors = check_objects("Pod", answer.get("items"))
        pods.sort(
            key=lambda pod: (pod["metadata"].get("creationTimestamp", ""), pod["metadata"]["name"])
        )
        metadata = answer.get("metadata")
        version = metadata.get("resourceVersion") if isinstance(metadata, dict) else None
        return PodList(pods, errors, str(version or ""))

    def wait_for_pods(self, namespace: str, selector: str, version: str, seconds: int) -> None:
        """Wait until one of them changes, at most that long."""
        answer = self._get_response(
            lambda: self._core.list_namespaced_pod(
                namespace,
                label_selector=selector,
                resource_version=version,
                watch=True,
                timeout_seconds=seconds,
                _preload_content=False,
                _request_timeout=(CALL_SECONDS[0], float(seconds + 5)),
            ),
            max_seconds=seconds + 5 + CALL_SECONDS[0],
        )
        try:
            call_within(seconds + 5, lambda: next(iter(answer.stream(amt=1)), None))
        except _network_errors() as error:
            raise _describe_network_error(self.address, error) from None
        finally:
            answer.close()

    def log(
        self, namespace: str, pod: str, container: str, *, follow: bool, previous: bool = False
    ) -> Iterator[bytes]:
        """Yield a container's log in chunks, with a time before each line; `previous` is its earlier start."""
        from urllib3.exceptions import ReadTimeoutError

        answer = self._get_response(
            lambda: self._core.read_namespaced_pod_log(
                pod,
                namespace,
                container=container,
                follow=follow,
                previous=previous,
                timestamps=True,
                _preload_content=False,
                _request_timeout=(
                    CALL_SECONDS[0],
                    _LOG_IDLE_SECONDS if follow else CALL_SECONDS[1],
                ),
            )
        )
        try:
            yield from answer.stream(amt=None if follow else 65_536)
        except ReadTimeoutError:
            raise LogTimeout(f"{self.address} sends no more log output") from None
        except _network_errors() as error:
            raise _describe_network_error(self.address, error) from None
        finally:
            answer.close()

    def _call_resource(
        self, resource: Resource, verb: str, namespace: str, **arguments: Any
    ) -> Manifest:
        options = {**arguments, "_preload_content": False, "_request_timeout": CALL_SECONDS}
        if resource.group:
            call = getattr(self._custom, f"{verb}_namespaced_custom_object")
            location = {
                "group": resource.group,
                "version": resource.version,
                "namespace": namespace,
                "plural": resource.plural,
            }
        else:
            call = getattr(self._core, f"{verb}_namespaced_{resource.kind.lower()}")
            location = {"namespace": namespace}
        return self._get_json(lambda: call(**location, **options))

    def _get_json(self, call: Callable[[], Any]) -> Manifest:
        response = self._get_response(call)
        try:
            document = parse_json(call_within(CALL_SECONDS[1], lambda: response.data))
        except _network_errors() as error:
            raise _describe_network_error(self.address, error) from None
        except ValueError:
            raise NoResponse(f"{self.address} is not a Kubernetes API server") from None
        if not isinstance(document, dict):
            raise NoResponse(f"{self.address} is not a Kubernetes API server")
        return document

    def _get_response(self, call: Callable[[], Any], max_seconds: float | None = None) -> Any:
        """Return a successful response, or raise."""
        from kubernetes.client.exceptions import ApiException

        try:
            response = call_within(max_seconds or sum(CALL_SECONDS), call)
        except ApiException as error:  # older clients raise, newer ones return the response
            raise self._create_error(error.status or 0, error.body) from None
        except _network_errors() as error:
            raise _describe_network_error(self.address, error) from None
        if not 200 <= response.status <= 299:
            try:
                body = call_within(CALL_SECONDS[1], lambda: response.data)
            except _network_errors():
                body = b""
            raise self._create_error(response.status, body)
        return response

    def _create_error(self, status: int, body: Any) -> GpuyardError:
        if status == 0:  # some versions of the client report TLS errors this way
            return NoResponse(f"{self.address} {_NO_TLS}", sent=False)
        try:
            status_object = parse_json(body)
        except (TypeError, ValueError):
            status_object = None
        message = ""
        if isinstance(status_object, Mapping):
            message = str(status_object.get("message") or "")
        for secret in self._list_secrets():
            message = message.replace(secret, "…")
        return ApiError(status, make_printable(message)[:_MAX_MESSAGE])

    def _list_secrets(self) -> Sequence[str]:
        """Return the current secrets, which change when a login is renewed."""
        configuration = self._configuration
        credentials = [*(configuration.api_key or {}).values(), configuration.password]
        words = [word for value in credentials for word in str(value or "").split()]
        return [word for word in words if len(word) > 7]  # "Bearer" and the like are not secret


def _describe_network_error(address: str, error: Exception) -> NoResponse:
    """Describe a network error, and whether the cluster may have received the request."""
    from urllib3 import exceptions

    if isinstance(error, exceptions.MaxRetryError) and error.reason is not None:
        error = error.reason
    match error:
        case exceptions.SSLError():
            return NoResponse(f"{address} {_NO_TLS}", sent=False)
        case exceptions.NameResolutionError():
            return NoResponse(f"{address}: host not found", sent=False)
        case exceptions.NewConnectionError():  # in some versions a subclass of the next
            return NoResponse(f"{address}: connection refused", sent=False)
        case exceptions.ConnectTimeoutError():
            return NoResponse(
                f"{address} is unreachable: no connection within {CALL_SECONDS[0]:g} s", sent=False
            )
        case exceptions.TimeoutError() | TimeoutError():
            return NoResponse(f"{address} did not answer within {CALL_SECONDS[1]:g} s")
    return NoResponse(f"{address} closed the connection ({type(error).__name__})")


def _network_errors() -> tuple[type[Exception], ...]:
    from urllib3.exceptions import HTTPError

    return (HTTPError, OSError)


def _use_config(read: Callable[[Any], Any]) -> Any:
    """Call a function of the client's config module; its other errors are not shown, as they may quote secrets."""
    from kubernetes import config
    from yaml import YAMLError

    try:
        return read(config)
    except config.ConfigException as mistake:
        raise UserMistake(
            f"your kubeconfig cannot be used: {make_printable(str(mistake))}"
        ) from None
    except (YAMLError, OSError, ValueError, TypeError, KeyError, AttributeError) as error:
        files = ", ".join(map(str, find_config_files())) or str(SERVICE_ACCOUNT)
        raise UserMistake(f"{files}: not a valid kubeconfig ({type(error).__name__})") from None


def _config_argument() -> str:
    return os.pathsep.join(map(str, find_config_files()))


def _pod_namespace() -> str:
    try:
        return (SERVICE_ACCOUNT / "namespace").read_text(encoding="utf-8").strip()
    except OSError:
        return "default"
