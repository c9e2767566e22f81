"""What all specs have in common."""

from pydantic import BaseModel, ConfigDict


class Spec(BaseModel):
    """Immutable, and strict about its keys: a misspelt key is a mistake, not a comment."""

    model_config = ConfigDict(
        defer_build=True,  # a command uses few of them, and each takes milliseconds
        extra="forbid",
        frozen=True,
        str_strip_whitespace=True,
        allow_inf_nan=False,
    )
