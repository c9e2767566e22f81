"""`gpuyard_lambda_instance`: one instance of Lambda Cloud, which has no Terraform provider of its own."""

from typing import Any

from tf import types
from tf.schema import Schema

from gpuyard.deploy.clouds.lambda_cloud import (
    POLL_SECONDS,
    Instance,
    LambdaCloud,
    LambdaSilent,
)
from gpuyard.deploy.terraform.resource import ReplacedResource, State, computed, given, told
from gpuyard.errors import GpuyardError

_BOOT_POLLS = 240  # eight GPUs take up to a quarter of an hour
_LOST_POLLS = 3


class LambdaInstance(ReplacedResource):
    """By its name: one that has it is taken, so that a launch whose answer was lost is not paid twice."""

    @classmethod
    def get_name(cls) -> str:
        return "lambda_instance"

    @classmethod
    def get_schema(cls) -> Schema:
        return Schema(
            attributes=[
                given("name", types.String(), "None other of the account has it."),
                given("instance_type", types.String(), "Like `gpu_8x_a100`."),
                given("region", types.String(), "Like `us-east-1`."),
                given("ssh_key", types.String(), "Name of a key that the account has."),
                computed("instance_id", types.String(), "Lambda Cloud's own."),
                computed("address", types.String(), "Public."),
                computed("private_address", types.String(), "Between instances of a region."),
            ],
            description="An instance of Lambda Cloud. The API key is read from LAMBDA_API_KEY or its file.",
        )

    def create(self, ctx: Any, planned: State) -> State | None:
        made: State | None = None
        with told(ctx):
            cloud = LambdaCloud.of_user()
            identity = _launched(cloud, planned)
            made = {**planned, "instance_id": identity, "address": "", "private_address": ""}
            return {**made, **_addresses(_ready(cloud, identity, planned["name"]))}
        return made  # with what went wrong: Terraform keeps it, and the next `up` replaces it

    def read(self, ctx: Any, current: State) -> State | None:
        with told(ctx):
            instance = LambdaCloud.of_user().instance(current["instance_id"])
            if instance is None:
                return None
            return {**current, **_addresses(instance)}
        return current

    def delete(self, ctx: Any, current: State) -> None:
        with told(ctx):
            LambdaCloud.of_user().end(current["instance_id"])


def _launched(cloud: LambdaCloud, planned: State) -> str:
    """Of an earlier run that was cut off, or new."""
    there = cloud.named(planned["name"])
    if there is not None:
        return there.id
    try:
        return cloud.launch(
            planned["name"], planned["instance_type"], planned["region"], planned["ssh_key"]
        )
    except LambdaSilent as silent:
        # asked for a second time, it might be there twice
        for _ in range(_LOST_POLLS):
            cloud.pause(POLL_SECONDS)
            there = cloud.named(planned["name"])
            if there is not None:
                return there.id
        raise GpuyardError(
            f"{silent}; no instance is called {planned['name']} so far, and `up` again takes one that is"
        ) from None


def _ready(cloud: LambdaCloud, identity: str, name: str) -> Instance:
    for _ in range(_BOOT_POLLS):
        instance = cloud.instance(identity)
        if instance is None:
            raise GpuyardError(f"{name} (instance {identity}) went away while it was starting")
        if instance.ready:
            return instance
        if instance.status == "unhealthy":
            raise GpuyardError(f"{instance} did not start; it may cost money")
        cloud.pause(POLL_SECONDS)
    raise GpuyardError(f"{name} (instance {identity}) has not started in time; it may cost money")


def _addresses(instance: Instance) -> State:
    return {"address": instance.address, "private_address": instance.private_address}
