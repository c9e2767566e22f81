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
from gpuyard.termination import exit_on_signals


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
        """The undilated rate of each direction."""
        return self.plan.rate_bytes_per_second

    @property
    def cores(self) -> tuple[int, ...]:
        return self.plan.cores

    def command(self, argv: Sequence[str]) -> list[str]:
        """Return the arguments that run `argv` in the node's network, on its cores.

        The host name is the node's address, so that programs that resolve it reach the node.
        """
        cores = ",".join(map(str, self.cores))
        enter = [*module_argv("gpuyard.lab.enter"), self.namespace, self.address, cores]
        return [*enter, "--", *argv]

    def enter(self) -> None:
        """Move this single-threaded process, such as a forked child, to the node."""
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
        """The factor by which everything takes longer than in the emulated cluster."""
        return self.plan.dilation

    def node(self, which: str) -> Node:
        """Return the node with this name or number."""
        for index, node in enumerate(self.nodes):
            if which in (node.name, str(index)):
                return node
        raise UnknownName("node", which, [node.name for node in self.nodes])

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """Prevent the removal of the lab for the duration of the block."""
        try:
            # `state.is_held` takes the lock for a moment, but only under `changing`
            with state.changing():
                if state.read(self.name) is None:
                    raise unknown_lab(self.name)
                descriptor = state.lock_shared(self.name)
        except BlockingIOError:  # this process owns the lab and holds its lock
            yield
            return
        try:
            yield
        finally:
            os.close(descriptor)


def up(plan: LabPlan) -> Lab:
    """Create the lab; it stays until `down`."""
    lab, descriptor = _create(plan, owned=False)
    os.close(descriptor)
    return lab


@contextlib.contextmanager
def temporary(plan: LabPlan) -> Iterator[Lab]:
    """Create a lab for this process and remove it at the end, also when SIGTERM or SIGHUP ends the process.

    After a kill, the next lab command removes it.
    """
    with exit_on_signals():
        lab, descriptor = _create(plan, owned=True)
        try:
            yield lab
        finally:
            try:
                with state.changing():
                    _remove(plan.name)
            finally:
                os.close(descriptor)


def find(name: str) -> Lab:
    """Return the running lab with this name."""
    check_can_make_labs()
    remove_orphans()
    with state.changing():
        lab_state = state.read(name)
        if lab_state is None:
            raise unknown_lab(name)
        health = state.health(lab_state)
    if health != "up":
        raise GpuyardError(
            f"lab {name!r} is {health}; remove it with: gpuyard lab down --name {name}"
        )
    return _lab_from_state(lab_state)


def set_rates(name: str, rate_bytes_per_second: float) -> None:
    """Change the rate of every node's link in a running lab; the plan keeps the original rates."""
    find(name)
    with state.changing():
        lab_state = state.read(name)
        if lab_state is None:
            raise unknown_lab(name)
        network.set_rates(lab_state.plan, lab_state.namespaces, rate_bytes_per_second)


def down(name: str) -> None:
    """Stop all processes in the lab and remove it."""
    check_can_make_labs()
    with state.changing():
        try:
            lab_state = state.read(name)
        except state.UnreadableState:
            check_free(name)
            raise _set_aside(name) from None
        if lab_state is None:
            raise unknown_lab(name)
        check_free(name)
        _remove(name)


def labs() -> list[tuple[LabState, Health]]:
    """Return all labs with a readable state, and their health, by name."""
    with state.changing():
        states = [lab for name in state.names() if (lab := _read_or_none(name)) is not None]
        return [(lab, state.health(lab)) for lab in states]


def unreadable() -> list[str]:
    """Return an error message for each lab whose state is unreadable."""
    messages = []
    for name in state.names():
        try:
            state.read(name)
        except state.UnreadableState as error:
            messages.append(str(error))
    return messages


def _read_or_none(name: str) -> LabState | None:
    try:
        return state.read(name)
    except state.UnreadableState:
        return None


def _set_aside(name: str) -> GpuyardError:
    """Move an unreadable state file away and return the error to raise.

    The lab's namespaces are unknown, and others may have similar names, so none is removed.
    """
    new_path = state.set_aside(name)
    candidates = network.find_namespaces(name)
    message = f"the state of lab {name!r} is unreadable; the file is now {new_path}. "
    if not candidates:
        return GpuyardError(message + "No namespace has a name like the lab's, so you are done")
    return GpuyardError(
        f"{message}These namespaces may belong to the lab and were kept: {', '.join(candidates)}; "
        "remove those that do with: ip netns delete NAME"
    )


def remove_orphans() -> list[str]:
    """Remove labs of dead processes, and forget labs that a reboot removed."""
    removed = []
    for lab_state, health in labs():
        if health not in ("orphan", "gone"):
            continue
        check_can_make_labs()
        with state.changing():
            current = state.read(lab_state.plan.name)
            if current is not None and state.health(current) in ("orphan", "gone"):
                _remove(current.plan.name)
                removed.append(current.plan.name)
    return removed


def _create(plan: LabPlan, *, owned: bool) -> tuple[Lab, int]:
    check_can_make_labs()
    remove_orphans()
    lab_state = LabState(
        plan=plan,
        namespaces=network.namespace_names(plan, secrets.token_hex(3)),
        stage="making",
        owned=owned,
        made_at=datetime.now(UTC).isoformat(timespec="seconds"),
    )
    with state.changing():
        if state.read(plan.name) is not None:
            raise UserMistake(
                f"lab {plan.name!r} already exists; choose another --name, or remove it "
                f"with: gpuyard lab down --name {plan.name}"
            )
        descriptor = state.lock_exclusively(plan.name)
        state.write(lab_state)
    try:
        network.create_network(plan, lab_state.namespaces)
        with state.changing():
            state.write(lab_state.with_stage("ready"))
    except BaseException:  # Ctrl-C too must not leave a partial lab
        with state.changing():
            _remove(plan.name)
        os.close(descriptor)
        raise
    return _lab_from_state(lab_state), descriptor


def _remove(name: str) -> None:
    lab_state = state.read(name)
    if lab_state is None:
        return
    # an interrupted removal is an orphan like any other
    state.write(lab_state.with_stage("removing"))
    rest = network.namespaces_with_token(lab_state.namespaces)  # of a resize that was killed
    network.remove_network(tuple(dict.fromkeys((*lab_state.namespaces, *rest))))
    state.forget(name)


def _lab_from_state(lab_state: LabState) -> Lab:
    nodes = zip(lab_state.plan.nodes, lab_state.namespaces[1:], strict=True)
    return Lab(lab_state.plan, tuple(Node(plan, namespace) for plan, namespace in nodes))


def check_free(name: str) -> None:
    if state.is_held(name):
        raise GpuyardError(f"lab {name!r} is in use by a running gpuyard; stop that process first")


def unknown_lab(name: str) -> GpuyardError:
    names = state.names()
    if names:
        return UnknownName("lab", name, names)
    return UserMistake(f"lab {name!r} not found; create it with: gpuyard lab up --name {name}")
