"""A plan's choice as the text of a deployment: what the plan knows is filled in, and what only its reader knows is marked."""

import json
import math
import re
from collections.abc import Callable, Iterator
from typing import get_args

from gpuyard.catalog import Price, prices
from gpuyard.errors import GpuyardError
from gpuyard.planner.result import ACQUIRED, Choice, PlanResult
from gpuyard.specs.deployment import Deployment

_FILL_IN = "# fill in"
_LONGEST_NAME = 32
_MOST_MACHINES = 250
_RENTED = ("on-demand", "spot", "reserved-1-year", "reserved-3-years")


def deployment_text(result: PlanResult) -> str:
    """Raises where the plan has no choice to build."""
    choice = result.winner
    if choice is None:
        raise GpuyardError(f"there is nothing to deploy: {result.verdict}")
    lines = [
        f"# {line}"
        for line in (
            f"{_line(result.name)}: {_line(choice.what)}.",
            f"{_line(choice.setting)}.",
            f"{_line(choice.duration)}, {_line(choice.price)}.",
            *_notes(choice),
        )
    ]
    lines += [
        f"name: {name_of(result.name)}",
        "cluster:",
        f"  name: {json.dumps(_line(result.name), ensure_ascii=False)}",
        f"  nodes: {choice.nodes}",
        f"  machine: {{gpu: {choice.gpu}, gpus: {choice.gpus_per_node}, topology: {choice.topology}}}",
    ]
    if choice.nodes > 1 and choice.network_keys is not None:
        lines.append(f"  network: {json.dumps(dict(choice.network_keys))}")
    lines += _target(choice)
    return "".join(f"{line}\n" for line in lines)


def name_of(text: str) -> str:
    """As a deployment may be called."""
    plain = re.sub(r"[^a-z0-9]+", "-", text.lower())[:_LONGEST_NAME].strip("-")
    return plain or "cluster"


def _line(text: str) -> str:
    """Of a comment: nothing in it may begin another."""
    return " ".join("".join(c if c.isprintable() else " " for c in text).split())


def _notes(choice: Choice) -> Iterator[str]:
    if choice.clusters > 1:
        yield f"The plan has {choice.clusters} such clusters side by side; this is one."
    if choice.rest is not None:
        rest = choice.rest
        yield f"It also rents {rest.nodes} × {_line(rest.name)} at times, which is not part of this file."
    price = _price(choice)
    if price is not None and not _deployable(price):
        yield f"gpuyard does not rent at {price.cloud}: make the machines there, and list them below."
    elif price is not None and choice.way != "on-demand":
        yield f"The plan counts with machines {ACQUIRED[choice.way]}; this file rents them on demand."
    if choice.network_is_assumed:
        yield "Nobody says how these machines are joined; the network is an assumption."


def _target(choice: Choice) -> list[str]:
    price = _price(choice)
    if price is not None and _deployable(price):
        return [
            "target:",
            f"  kind: {price.cloud}",
            *(f"  {line}" for line in _CLOUDS[price.cloud](price)),
            f"  max_usd_per_hour: ${math.ceil(110 * price.usd_per_hour * choice.nodes) / 100:.2f}/h",
            "  ttl: 8 h",
        ]
    where = "rented elsewhere" if choice.way in _RENTED else "yours"
    if choice.nodes > _MOST_MACHINES:
        raise GpuyardError(
            f"the plan has {choice.nodes} machines that are {where}; list them in a deployment's target yourself"
        )
    lines = ["target:", "  kind: ssh", f"  machines:  {_FILL_IN} the address and user of each"]
    lines += [
        f"    - {{name: node{node}, address: 192.0.2.{node + 1}, user: ubuntu}}"
        for node in range(choice.nodes)
    ]
    return lines


def _price(choice: Choice) -> Price | None:
    """The row of the catalog that it is rented by."""
    if choice.way not in _RENTED or choice.offer not in prices():
        return None
    return prices().get(choice.offer)


def _deployable(price: Price) -> bool:
    """Whether there is a target for its cloud, and the catalog knows what to ask that for."""
    targets = get_args(Deployment.model_fields["target"].annotation)
    kinds = {get_args(target.model_fields["kind"].annotation)[0] for target in targets}
    asked_for = bool(price.instance) and not price.instance.startswith("tpu-")
    return price.cloud in kinds and price.cloud in _CLOUDS and asked_for


def _lambda(price: Price) -> Iterator[str]:
    yield f"instance_type: {price.instance}"
    yield f"region: {price.region or 'us-east-1'}  {_FILL_IN}: one that has them, as `gpuyard deploy plan` says"
    yield f"ssh_key: laptop  {_FILL_IN}: the name of a public key of your account"


def _aws(price: Price) -> Iterator[str]:
    yield f"instance_type: {price.instance}"
    yield f"region: {price.region or 'us-east-1'}"
    yield f"ssh_from: 192.0.2.1/32  {_FILL_IN}: the address that you come from"


def _gcp(price: Price) -> Iterator[str]:
    yield f"machine_type: {price.instance}"
    yield f"project: your-project  {_FILL_IN}"
    yield f"zone: {price.region or 'us-central1'}-a  {_FILL_IN}: one that has them"
    yield f"ssh_from: 192.0.2.1/32  {_FILL_IN}: the address that you come from"


_CLOUDS: dict[str, Callable[[Price], Iterator[str]]] = {
    "lambda": _lambda,
    "aws": _aws,
    "gcp": _gcp,
}
