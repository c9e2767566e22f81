"""Who may use how much, as a script of `sacctmgr` commands: an account for each Unix group."""

import grp
import shlex
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from gpuyard.share.store.lease import Lease


@dataclass(frozen=True)
class Account:
    """A Unix group with its members that lease, and what they may hold together."""

    group: str
    users: tuple[str, ...]
    most_gpus: int | None = None
    """At a time; None: all."""
    priority: int = 0

    @property
    def limited(self) -> bool:
        """Whether Slurm needs its database to keep the rules of this one."""
        return self.most_gpus is not None or self.priority != 0


def accounts_of(leases: Iterable[Lease]) -> list[Account]:
    """Everybody who has leased, under the main group that they had last."""
    groups = {lease.user: lease.group for lease in leases}
    return [
        Account(group, tuple(sorted(user for user, of in groups.items() if of == group)))
        for group in sorted(set(groups.values()))
    ]


def admins_of(group: str) -> tuple[str, ...]:
    """Whom the user database has in it."""
    try:
        return tuple(sorted(set(grp.getgrnam(group).gr_mem)))
    except KeyError:
        return ()


def accounts_script(
    cluster: str, accounts: Sequence[Account], admins: Sequence[str], gpus: int
) -> str:
    """What is there already stays, limits are set to what they are now; run it as often as you like."""
    lines = [
        "#!/bin/sh",
        "# accounts.sh: accounts, QOS and limits of Slurm equal to the rules of `gpuyard lease` when this was written.",
        "# Run it as root once slurmdbd answers. A user who is not in it is added with:",
        "#   sacctmgr add user NAME account=GROUP",
        "set -eu",
        "add() { # what is there already is no error",
        '    sacctmgr --immediate --quiet add "$@" >/dev/null || true',
        "}",
        "set_to() { # fails where there is nothing to set",
        '    sacctmgr --immediate --quiet modify "$@" >/dev/null',
        "}",
        f"add cluster {cluster}",
        "# slurmctld tells the database what a GPU is when it first starts, and it starts only in a cluster that is there",
        "if ! sacctmgr --noheader --parsable2 show tres format=type,name | grep -q '^gres|gpu$'; then",
        '    echo "accounts.sh: start slurmctld now, then run this again" >&2',
        "    exit 1",
        "fi",
        "# everybody: as many GPUs as there are, for as long as a lease asks",
        f"set_to qos normal set GrpTRES=gres/gpu={gpus} Priority=0",
    ]
    for account in accounts:
        name = shlex.quote(account.group)
        most = -1 if account.most_gpus is None else account.most_gpus
        lines += [
            f"add account {name} cluster={cluster} description={name} organization={name}",
            f"set_to account {name} cluster={cluster} set GrpTRES=gres/gpu={most}",
        ]
        qos = "normal"
        if account.priority:
            qos = shlex.quote(f"gpuyard-{account.group}")
            lines += [f"add qos {qos}", f"set_to qos {qos} set Priority={account.priority}"]
            lines += [f"set_to account {name} cluster={cluster} set QOS={qos} DefaultQOS={qos}"]
        lines += [
            f"add user {shlex.quote(user)} cluster={cluster} account={name}"
            for user in account.users
        ]
    if admins:
        lines.append("# members of the admin group may end anybody's jobs")
    first = accounts[0].group if accounts else "root"
    for admin in admins:
        user = shlex.quote(admin)
        if not any(admin in account.users for account in accounts):
            lines.append(f"add user {user} cluster={cluster} account={shlex.quote(first)}")
        lines.append(f"set_to user {user} set AdminLevel=Operator")
    return "\n".join(lines) + "\n"
