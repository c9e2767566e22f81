"""Render a plan's choice as a deployment file. It marks the values that only the user knows with `# fill in`."""

import json
import math
import re
from collections.abc import Callable, Iterator
from typing import get_args

from gpuyard.catalog import Price, prices
from gpuyard.errors import GpuyardError
from gpuyard.planner.choice import ACQUISITION_LABELS, Choice
from gpuyard.planner.result import PlanResult
from gpuyard.specs.deployment import ROLES, Deployment

_FILL_IN = "# fill in"
_MAX_NAME = 32
_MAX_MACHINES = 250
_SPOT_CLOUDS = ("aws", "gcp")
_RENTED = ("on-demand", "spot", "reserved-1-year", "reserved-3-years")


def render_deployment(result: PlanResult) -> str:
    """Return the text of a deployment file. Raises if the plan recommends nothing to build."""
    choice = result.winner
    if choice is None:
        raise GpuyardError(f"nothing to deploy: {result.verdict}")
    lines = [
        f"# {line}"
        for line in (
            f"{_to_line(result.name)}: {_to_line(choice.summary)}.",
            f"{_to_line(choice.setting)}.",
            f"{_to_line(choice.duration)}, {_to_line(choice.price)}.",
            *_list_notes(choice),
        )
    ]
    lines += [
        f"name: {to_deployment_name(result.name)}",
        "cluster:",
        f"  name: {json.dumps(_to_line(result.name), ensure_ascii=False)}",
        f"  nodes: {choice.nodes}",
        f"  machine: {{gpu: {choice.gpu}, gpus: {choice.gpus_per_node}, topology: {choice.topology}}}",
    ]
    if choice.nodes > 1 and choice.network_keys is not None:
        lines.append(f"  network: {json.dumps(dict(choice.network_keys))}")
    lines += _render_target(choice)
    lines += [f"{machines}: [{', '.join(ROLES)}]" for machines in ("head", "workers")]
    return "".join(f"{line}\n" for line in lines)


def to_deployment_name(text: str) -> str:
    """Turn any text into a valid deployment name."""
    name = re.sub(r"[^a-z0-9]+", "-", text.lower())[:_MAX_NAME].strip("-")
    return name or "cluster"


def _to_line(text: str) -> str:
    """Join the text into one printable line, so that it cannot break out of a comment."""
    return " ".join("".join(c if c.isprintable() else " " for c in text).split())


def _list_notes(choice: Choice) -> Iterator[str]:
    if choice.clusters > 1:
        yield f"The plan has {choice.clusters} such clusters; this file describes one of them."
    if choice.rest is not None:
        rest = choice.rest
        yield f"At times the plan also rents {rest.nodes} × {_to_line(rest.name)}, which this file does not include."
    price = _find_price(choice)
    if price is not None and not _can_deploy(price):
        yield f"gpuyard cannot rent from {price.cloud}: create the machines there, and list them below."
    elif price is not None and choice.way != "on-demand" and not _is_spot(price, choice):
        yield f"The plan assumes machines {ACQUISITION_LABELS[choice.way]}; this file rents them on demand."
    if choice.network_is_assumed:
        yield "The network between these machines is unknown; the one below is an assumption."


def _render_target(choice: Choice) -> list[str]:
    price = _find_price(choice)
    if price is not None and _can_deploy(price):
        return [
            "target:",
            f"  kind: {price.cloud}",
            *(f"  {line}" for line in _CLOUDS[price.cloud](price, choice.way)),
            f"  max_usd_per_hour: ${_find_usd_limit(price, choice):.2f}/h",
            "  ttl: 8 h",
        ]
    where = "rented elsewhere" if choice.way in _RENTED else "yours"
    if choice.nodes > _MAX_MACHINES:
        raise GpuyardError(
            f"the plan has {choice.nodes} machines that are {where}, more than a file can list; write the target yourself"
        )
    lines = ["target:", "  kind: ssh", f"  machines:  {_FILL_IN} the address and user of each"]
    lines += [
        f"    - {{name: node{node}, address: 192.0.2.{node + 1}, user: ubuntu}}"
        for node in range(choice.nodes)
    ]
    return lines


def _is_spot(price: Price, choice: Choice) -> bool:
    return choice.way == "spot" and price.cloud in _SPOT_CLOUDS


def _find_usd_limit(price: Price, choice: Choice) -> float:
    """Return a tenth more than the plan's price per hour."""
    spot = price.spot_usd_per_hour if _is_spot(price, choice) else None
    return math.ceil(110 * (spot or price.usd_per_hour) * choice.nodes) / 100


def _find_price(choice: Choice) -> Price | None:
    """Return the catalog's price for a rented choice."""
    if choice.way not in _RENTED or choice.offer not in prices():
        return None
    return prices().get(choice.offer)


def _can_deploy(price: Price) -> bool:
    """Return whether a target for this cloud exists, and the catalog names an instance type to request."""
    targets = get_args(Deployment.model_fields["target"].annotation)
    kinds = {get_args(target.model_fields["kind"].annotation)[0] for target in targets}
    has_instance = bool(price.instance) and not price.instance.startswith("tpu-")
    return price.cloud in kinds and price.cloud in _CLOUDS and has_instance


def _list_lambda_lines(price: Price, way: str) -> Iterator[str]:
    del way
    yield f"instance_type: {price.instance}"
    yield f"region: {price.region or 'us-east-1'}  {_FILL_IN}: a region with capacity; `gpuyard deploy plan` lists them"
    yield f"ssh_key: laptop  {_FILL_IN}: the name of a public key in your account"


def _list_aws_lines(price: Price, way: str) -> Iterator[str]:
    yield f"instance_type: {price.instance}"
    yield f"region: {price.region or 'us-east-1'}"
    if way == "spot":
        yield "market: spot"


def _list_gcp_lines(price: Price, way: str) -> Iterator[str]:
    yield f"machine_type: {price.instance}"
    yield f"project: your-project  {_FILL_IN}"
    yield f"zone: {price.region or 'us-central1'}-a  {_FILL_IN}: a zone with capacity"
    if way == "spot":
        yield "spot: true"


_CLOUDS: dict[str, Callable[[Price, str], Iterator[str]]] = {
    "lambda": _list_lambda_lines,
    "aws": _list_aws_lines,
    "gcp": _list_gcp_lines,
}
