"""A lab that is up: its nodes, and how a command gets onto one of them."""

import contextlib
import os
import secrets
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from gpuyard.errors import GpuyardError, UnknownName, UserMistake
from gpuyard.interpreter import module_argv
from gpuyard.lab import network, state
from gpuyard.lab.network import check_can_make_labs
from gpuyard.lab.plan import INTERFACE, LabPlan, NodePlan
from gpuyard.lab.state import Health, LabState


@dataclass(frozen=True)
class Node:
    """One emulated machine."""

    plan: NodePlan
    namespace: str
    interface: str = INTERFACE

    @property
    def name(self) -> str:
        return self.plan.name

    @property
    def address(self) -> str:
        return self.plan.address

    @property
    def rack(self) -> int:
        return self.plan.rack

    @property
    def rate_bytes_per_second(self) -> float:
        """Of each direction, undilated."""
        return self.plan.rate_bytes_per_second

    @property
    def cores(self) -> tuple[int, ...]:
        return self.plan.cores

    def command(self, argv: Sequence[str]) -> list[str]:
        """The arguments that run `argv` here: in the node's network, under its name, on its cores.

        The host name is the address, so that it resolves to the node for programs that look it up.
        """
        cores = ",".join(map(str, self.cores))
        enter = [*module_argv("gpuyard.lab.enter"), self.namespace, self.address, cores]
        return [*enter, "--", *argv]

    def enter(self) -> None:
        """Move this process here, while it has a single thread: for children that were forked."""
        from gpuyard.lab.enter import enter

        enter(self.namespace, self.address, self.cores)


@dataclass(frozen=True)
class Lab:
    """An emulated cluster on this machine."""

    plan: LabPlan
    nodes: tuple[Node, ...]

    @property
    def name(self) -> str:
        return self.plan.name

    @property
    def dilation(self) -> float:
        """Everything in the lab takes so many times as long as in the cluster that it stands for."""
        return self.plan.dilation

    def node(self, which: str) -> Node:
        """By name or by number."""
        for index, node in enumerate(self.nodes):
            if which in (node.name, str(index)):
                return node
        raise UnknownName("node", which, [node.name for node in self.nodes])

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """While this lasts, nobody takes the lab down."""
        try:
            # who looks whether a lab is held takes its lock for a moment, and only while changing
            with state.changing():
                if state.read(self.name) is None:
                    raise _unknown(self.name)
                descriptor = state.share(self.name)
        except BlockingIOError:  # the owner's own lab: its lock is as good
            yield
            return
        try:
            yield
        finally:
            os.close(descriptor)


def up(plan: LabPlan) -> Lab:
    """Make the lab; it stays until `down`."""
    made, descriptor = _make(plan, owned=False)
    os.close(descriptor)
    return made


@contextlib.contextmanager
def temporary(plan: LabPlan) -> Iterator[Lab]:
    """A lab for this process only: it goes at the end, or, after a kill, with the next lab command."""
    made, descriptor = _make(plan, owned=True)
    try:
        yield made
    finally:
        try:
            with state.changing():
                _remove(plan.name)
        finally:
            os.close(descriptor)


def find(name: str) -> Lab:
    """The lab of this name that is up."""
    check_can_make_labs()
    remove_orphans()
    with state.changing():
        found = state.read(name)
        if found is None:
            raise _unknown(name)
        condition = state.health(found)
    if condition != "up":
        raise GpuyardError(
            f"lab {name!r} is {condition}; remove it with: gpuyard lab down --name {name}"
        )
    return _lab(found)


def set_rates(name: str, rate_bytes_per_second: float) -> None:
    """Of every node's link, while it is up; its plan stays what it was, so that somebody can go back to it."""
    find(name)
    with state.changing():
        known = state.read(name)
        if known is None:
            raise _unknown(name)
        network.set_rates(known.plan, known.namespaces, rate_bytes_per_second)


def down(name: str) -> None:
    """Remove the lab and end what runs in it."""
    check_can_make_labs()
    with state.changing():
        try:
            known = state.read(name)
        except state.UnreadableState:
            _check_free(name)
            raise _put_aside(name) from None
        if known is None:
            raise _unknown(name)
        _check_free(name)
        _remove(name)


def labs() -> list[tuple[LabState, Health]]:
    """All labs with their health, by name; those whose state can't be read are left out."""
    with state.changing():
        found = [known for name in state.names() if (known := _readable(name)) is not None]
        return [(known, state.health(known)) for known in found]


def unreadable() -> list[str]:
    """A sentence for each lab whose state can't be read."""
    sentences = []
    for name in state.names():
        try:
            state.read(name)
        except state.UnreadableState as error:
            sentences.append(str(error))
    return sentences


def _readable(name: str) -> LabState | None:
    try:
        return state.read(name)
    except state.UnreadableState:
        return None


def _put_aside(name: str) -> GpuyardError:
    """Which namespaces were the lab's is not known, and others may have such names: none is touched."""
    aside = state.put_aside(name)
    like = network.like_of(name)
    words = f"the state of lab {name!r} could not be read; the file is now {aside}. "
    if not like:
        return GpuyardError(words + "No namespace has a name like the lab's: nothing is left to do")
    return GpuyardError(
        f"{words}These namespaces may be the lab's, and were left: {', '.join(like)}; "
        "remove those that are with: ip netns delete NAME"
    )


def remove_orphans() -> list[str]:
    """Remove what dead makers and owners left behind, and forget labs that a reboot took."""
    removed = []
    for known, condition in labs():
        if condition not in ("orphan", "gone"):
            continue
        check_can_make_labs()
        with state.changing():
            again = state.read(known.plan.name)
            if again is not None and state.health(again) in ("orphan", "gone"):
                _remove(again.plan.name)
                removed.append(again.plan.name)
    return removed


def _make(plan: LabPlan, *, owned: bool) -> tuple[Lab, int]:
    check_can_make_labs()
    remove_orphans()
    making = LabState(
        plan=plan,
        namespaces=network.namespace_names(plan, secrets.token_hex(3)),
        stage="making",
        owned=owned,
        made_at=datetime.now(UTC).isoformat(timespec="seconds"),
    )
    with state.changing():
        if state.read(plan.name) is not None:
            raise UserMistake(
                f"there is a lab called {plan.name!r} already; choose another --name, or remove it "
                f"with: gpuyard lab down --name {plan.name}"
            )
        descriptor = state.own(plan.name)
        state.write(making)
    try:
        network.make_network(plan, making.namespaces)
        with state.changing():
            state.write(making.with_stage("ready"))
    except BaseException:  # Ctrl-C too: nothing half-made stays
        with state.changing():
            _remove(plan.name)
        os.close(descriptor)
        raise
    return _lab(making), descriptor


def _remove(name: str) -> None:
    known = state.read(name)
    if known is None:
        return
    # an interrupted removal is an orphan like any other
    state.write(known.with_stage("removing"))
    network.remove_network(known.namespaces)
    state.forget(name)


def _lab(known: LabState) -> Lab:
    nodes = zip(known.plan.nodes, known.namespaces[1:], strict=True)
    return Lab(known.plan, tuple(Node(plan, namespace) for plan, namespace in nodes))


def _check_free(name: str) -> None:
    if state.is_held(name):
        raise GpuyardError(f"lab {name!r} is in use by a running gpuyard; stop that one first")


def _unknown(name: str) -> GpuyardError:
    known = state.names()
    if known:
        return UnknownName("lab", name, known)
    return UserMistake(f"there is no lab {name!r}; make one with: gpuyard lab up --name {name}")
