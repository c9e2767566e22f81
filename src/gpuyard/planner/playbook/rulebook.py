"""The playbook's table: stages and reasons with the conditions under which they hold."""

import datetime
import functools
import tomllib
from collections.abc import Mapping
from importlib import resources
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

Fact = bool | int | float | str
Side = Literal["cloud", "on-premises"]


class _Row(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    when: dict[str, Fact]

    def holds(self, facts: Mapping[str, Fact]) -> bool:
        return all(_compare(condition, value, facts) for condition, value in self.when.items())


class StageFigures(BaseModel):
    """Whose prices the stage's commands carry where no plan has better ones."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    machine: str  # from parts, as `search.offers` of a plan names it
    instance: str
    gpu_hours: float = Field(gt=0)  # of one person in a month


class Tool(BaseModel):
    """Software by its name, and what it is for."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    purpose: str
    url: str
    date: datetime.date


class Stage(_Row):
    """How a team of a size works, and when it has outgrown that."""

    id: str
    name: str
    why: str
    software: tuple[str, ...] = Field(min_length=1)
    tools: tuple[str, ...] = Field(min_length=1)
    tier: str  # of `gpuyard catalog tiers`: what its machines are sold as
    trigger: str
    figures: StageFigures
    commands: tuple[str, ...] = Field(min_length=1)


class Reason(_Row):
    """Something that speaks for one side."""

    side: Side
    words: str
    decides: bool = False


class Rulebook(BaseModel):
    """The whole table."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    stage: tuple[Stage, ...] = Field(min_length=1)
    reason: tuple[Reason, ...] = Field(min_length=1)
    tool: dict[str, Tool]

    def tools_of(self, stage: Stage) -> tuple[Tool, ...]:
        return tuple(self.tool[name] for name in stage.tools)


def _compare(condition: str, value: Fact, facts: Mapping[str, Fact]) -> bool:
    for ending, least in (("_at_least", True), ("_at_most", False)):
        if condition.endswith(ending):
            fact = facts[condition.removesuffix(ending)]
            if isinstance(fact, str) or isinstance(value, str):
                raise ValueError(f"{condition} compares numbers")
            return fact >= value if least else fact <= value
    return facts[condition] == value


@functools.cache
def rulebook() -> Rulebook:
    text = (resources.files("gpuyard.planner") / "data" / "playbook.toml").read_text(
        encoding="utf-8"
    )
    return Rulebook.model_validate(tomllib.loads(text))
