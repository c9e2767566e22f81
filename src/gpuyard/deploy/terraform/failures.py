"""Turn what Terraform and the clouds report into one sentence with the next thing to try."""

import re
from collections.abc import Iterable, Mapping
from typing import Any

_MAX_TEXT = 400
# Everything before the provider's own message: the call, the HTTP status, and the request's id.
_WRAPPING = re.compile(
    r".*?(?:api error (?=\w+:)|googleapi: (?:Error (?=\d+: )|got HTTP response code )|"
    r'"message": ?"|error waiting for instance to create: )',
    re.IGNORECASE | re.DOTALL,
)
_BOX = re.compile(r"^[│╷╵| ]+", re.MULTILINE)
_CAUSES: tuple[tuple[re.Pattern[str], str], ...] = tuple(
    (re.compile(pattern, re.IGNORECASE), advice)
    for pattern, advice in (
        (
            r"no valid credential sources|no EC2 IMDS role found",
            "no AWS credentials: run `aws sso login` or `aws configure`, or set AWS_PROFILE",
        ),
        (
            r"ExpiredToken|token .{0,40}(?:has )?expired|InvalidClientTokenId|AuthFailure",
            "the AWS session has expired or its key is wrong: run `aws sso login`, or renew the keys",
        ),
        (
            r"UnauthorizedOperation|AccessDenied",
            "your AWS user or role lacks a permission: ask the account's administrator for it",
        ),
        (
            r"VcpuLimitExceeded|MaxSpotInstanceCountExceeded",
            "the account's quota is too small: request more vCPUs for this instance family and region under Service "
            "Quotas, EC2, in AWS's console",
        ),
        (
            r"AddressLimitExceeded",
            "the account has no Elastic IP address left: release one, or request more under Service Quotas, EC2",
        ),
        (
            r"InsufficientInstanceCapacity|SpotMaxPriceTooLow|InsufficientCapacity",
            "AWS has no such machine free there now: try another `zone` or `region`, `market: spot`, or a reservation",
        ),
        (
            r"could not find default credentials|No credentials loaded|application default credentials",
            "no Google Cloud credentials: run `gcloud auth application-default login`",
        ),
        (
            r"invalid_grant|reauth related error",
            "the Google Cloud session has expired: run `gcloud auth application-default login`",
        ),
        (
            r"has not been used in project .* before or it is disabled|accessNotConfigured|SERVICE_DISABLED",
            "enable the API: run `gcloud services enable compute.googleapis.com --project PROJECT`",
        ),
        (
            r"Quota '?[A-Z0-9_]+'? exceeded|quotaExceeded|QUOTA_EXCEEDED",
            "the project's quota is too small: request more under IAM & Admin, Quotas, in Google's console (GPUs need "
            "GPUS_ALL_REGIONS as well)",
        ),
        (
            r"ZONE_RESOURCE_POOL_EXHAUSTED|does not have enough resources available",
            "Google has no such machine free there now: try another `zone`, or `spot: true`",
        ),
        (
            r"Required '[a-z.]+' permission|PERMISSION_DENIED",
            "your Google account lacks a permission in this project: ask its administrator for it",
        ),
        (
            r"auth_url|Missing input for argument|OS_CLOUD|You must provide .{0,40}cloud",
            "no OpenStack credentials: set OS_CLOUD to a name in clouds.yaml, or source the project's openrc file",
        ),
        (
            r"Quota exceeded for|exceeds allowed quota|OverQuota",
            "the OpenStack project's quota is too small: ask the cloud's operator for more",
        ),
        (
            r"No valid host was found",
            "the cloud has no server free for this flavor now: try later, another flavor, or `near: false`",
        ),
        (
            r"could not connect to registry|failed to request discovery document|no such host",
            "check that this machine reaches the provider's registry, or name a mirror in ~/.terraformrc",
        ),
    )
)


def describe_errors(diagnostics: Iterable[Mapping[str, Any]]) -> str:
    """Return Terraform's errors as one sentence: each once, without its wrapping, and the advice for the first known one."""
    texts: dict[str, str] = {}
    for diagnostic in diagnostics:
        summary, detail = (str(diagnostic.get(key) or "") for key in ("summary", "detail"))
        text = shorten_error(": ".join(filter(None, (summary.rstrip(".: "), detail.strip()))))
        texts.setdefault(text, str(diagnostic.get("address") or ""))
    described = "; ".join(
        f"{address}: {text}" if address else text for text, address in texts.items()
    )
    return add_advice(described)


def find_plain_error(output: str) -> str:
    """Return the first error in output that is not JSON, without the warnings before it."""
    text = _BOX.sub("", output)
    _, mark, error = text.partition("Error: ")
    paragraphs = (error if mark else text).strip().split("\n\n")
    return add_advice(shorten_error(": ".join(paragraphs[:2])))


def shorten_error(text: str) -> str:
    """Return what the cloud itself said, in one line."""
    line = " ".join(_WRAPPING.sub("", text, count=1).split()) or " ".join(text.split())
    return (line if len(line) <= _MAX_TEXT else f"{line[:_MAX_TEXT]}…").rstrip(".")


def add_advice(text: str) -> str:
    advice = next((advice for pattern, advice in _CAUSES if pattern.search(text)), None)
    return f"{text}. {advice[0].upper()}{advice[1:]}" if advice else text
