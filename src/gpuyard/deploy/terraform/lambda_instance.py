"""`gpuyard_lambda_instance`: an instance at Lambda Cloud, which has no official Terraform provider."""

from typing import Any

from tf import types
from tf.schema import Schema

from gpuyard.deploy.clouds.lambda_cloud import (
    POLL_SECONDS,
    Instance,
    LambdaCloud,
    LambdaNoResponse,
)
from gpuyard.deploy.terraform.resource import (
    ReplacedResource,
    State,
    computed_attribute,
    report_errors,
    required_attribute,
)
from gpuyard.errors import GpuyardError

_BOOT_POLLS = 240  # an instance with eight GPUs takes up to 15 minutes
_LOOKUP_POLLS = 3


class LambdaInstance(ReplacedResource):
    """An instance identified by its name: an existing one is adopted, so a lost response is never paid for twice."""

    @classmethod
    def get_name(cls) -> str:
        return "lambda_instance"

    @classmethod
    def get_schema(cls) -> Schema:
        return Schema(
            attributes=[
                required_attribute("name", types.String(), "Name, unique in the account."),
                required_attribute(
                    "instance_type", types.String(), "Instance type, like `gpu_8x_a100`."
                ),
                required_attribute("region", types.String(), "Region, like `us-east-1`."),
                required_attribute("ssh_key", types.String(), "Name of an ssh key in the account."),
                computed_attribute("instance_id", types.String(), "Lambda Cloud's instance id."),
                computed_attribute("address", types.String(), "Public address."),
                computed_attribute(
                    "private_address", types.String(), "Address between instances of a region."
                ),
            ],
            description="An instance at Lambda Cloud. The API key is read from LAMBDA_API_KEY or its file.",
        )

    def create(self, ctx: Any, planned: State) -> State | None:
        state: State | None = None
        with report_errors(ctx):
            cloud = LambdaCloud.from_environment()
            instance_id = _find_or_launch(cloud, planned)
            state = {**planned, "instance_id": instance_id, "address": "", "private_address": ""}
            return {**state, **_addresses(_wait_until_ready(cloud, instance_id, planned["name"]))}
        return state  # after an error, Terraform marks this state as tainted, and the next `up` replaces it

    def read(self, ctx: Any, current: State) -> State | None:
        with report_errors(ctx):
            instance = LambdaCloud.from_environment().instance(current["instance_id"])
            if instance is None:
                return None
            return {**current, **_addresses(instance)}
        return current

    def delete(self, ctx: Any, current: State) -> None:
        with report_errors(ctx):
            LambdaCloud.from_environment().terminate(current["instance_id"])


def _find_or_launch(cloud: LambdaCloud, planned: State) -> str:
    """Return the id of an instance with this name, from an interrupted run or newly launched."""
    instance = cloud.find_by_name(planned["name"])
    if instance is not None:
        return instance.id
    try:
        return cloud.launch(
            planned["name"], planned["instance_type"], planned["region"], planned["ssh_key"]
        )
    except LambdaNoResponse as error:
        # A second request could launch a second instance, so look for the first.
        for _ in range(_LOOKUP_POLLS):
            cloud.pause(POLL_SECONDS)
            instance = cloud.find_by_name(planned["name"])
            if instance is not None:
                return instance.id
        raise GpuyardError(
            f"{error}; no instance is named {planned['name']} so far. Run `up` again: it adopts one that appears later"
        ) from None


def _wait_until_ready(cloud: LambdaCloud, instance_id: str, name: str) -> Instance:
    for _ in range(_BOOT_POLLS):
        instance = cloud.instance(instance_id)
        if instance is None:
            raise GpuyardError(f"{name} (instance {instance_id}) disappeared while it was starting")
        if instance.ready:
            return instance
        if instance.status == "unhealthy":
            raise GpuyardError(f"{instance} did not start; it may cost money")
        cloud.pause(POLL_SECONDS)
    raise GpuyardError(
        f"{name} (instance {instance_id}) has not started in time; it may cost money"
    )


def _addresses(instance: Instance) -> State:
    return {"address": instance.address, "private_address": instance.private_address}
