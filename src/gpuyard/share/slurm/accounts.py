"""Who may use how much, as a script of `sacctmgr` commands: an account for each Unix group, a QOS for each priority."""

import grp
import pwd
import shlex
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from gpuyard.share.store.lease import Lease
from gpuyard.share.turns.rules import Rules, groups_of

SHARDS = 100
"""Parts of a GPU that Slurm counts in, where a lease is of less than a whole one; and of what it bills."""


@dataclass(frozen=True)
class SlurmUser:
    """A user as Slurm knows them: every job of theirs is one account's."""

    user: str
    account: str
    priority: int = 0
    elsewhere: tuple[str, ...] = ()
    """Other groups of theirs that have limits, which Slurm does not hold them to."""


@dataclass(frozen=True)
class Account:
    """A Unix group, and what its members may hold together."""

    group: str
    most_gpus: int | None = None
    """At a time; None: all."""
    weekly_hours: float | None = None


@dataclass(frozen=True)
class Accounts:
    """Everybody, and today's rules for them."""

    accounts: tuple[Account, ...] = ()
    members: tuple[SlurmUser, ...] = ()
    rules: Rules = field(default_factory=Rules)

    @property
    def limited(self) -> bool:
        """Whether Slurm needs its database to keep these rules."""
        return bool(self.limits_hours or self.rules.quotas or self.priorities or self.is_fair)

    @property
    def limits_hours(self) -> bool:
        return bool(self.rules.weekly_hours)

    @property
    def is_fair(self) -> bool:
        """Who used less comes first."""
        return self.rules.half_life_seconds is not None

    @property
    def priorities(self) -> tuple[int, ...]:
        """All that there are, the lowest first, where there are several."""
        found = {0, *self.rules.priorities.values()}
        return tuple(sorted(found)) if len(found) > 1 else ()


def accounts_of(
    leases: Iterable[Lease],
    rules: Rules | None = None,
    groups: Callable[[int], frozenset[str]] = groups_of,
) -> Accounts:
    """Everybody who has leased, and all members of the groups that have rules."""
    rules = rules or Rules()
    ruled = {*rules.quotas, *rules.weekly_hours, *rules.priorities}
    uids = {name: uid for group in ruled for name, uid in _people(group)}
    mains = {name: _group_name(uid) for name, uid in uids.items()}
    for lease in leases:
        uids[lease.user], mains[lease.user] = lease.uid, lease.group
    members = [_member(name, mains[name], groups(uids[name]), rules) for name in sorted(uids)]
    accounts = {*rules.quotas, *rules.weekly_hours, *(member.account for member in members)}
    return Accounts(
        tuple(
            Account(group, rules.quotas.get(group), rules.weekly_hours.get(group))
            for group in sorted(accounts)
        ),
        tuple(members),
        rules,
    )


def _member(user: str, main: str, groups: frozenset[str], rules: Rules) -> SlurmUser:
    """Under the group that limits them the most, else their main one."""
    limited = sorted(
        groups & {*rules.quotas, *rules.weekly_hours},
        key=lambda group: (rules.quotas.get(group, 1 << 30), group),
    )
    return SlurmUser(
        user, limited[0] if limited else main, rules.priority(groups), tuple(limited[1:])
    )


def _people(group: str) -> list[tuple[str, int]]:
    """Whom the user database has in it, as their main group or another."""
    try:
        found = grp.getgrnam(group)
    except KeyError:
        return []
    people = [
        (one.pw_name, one.pw_uid)
        for one in pwd.getpwall()
        if one.pw_gid == found.gr_gid or one.pw_name in found.gr_mem
    ]
    return sorted(set(people))


def _group_name(uid: int) -> str:
    return grp.getgrgid(pwd.getpwuid(uid).pw_gid).gr_name


def admins_of(group: str) -> tuple[str, ...]:
    """Whom the user database has in it."""
    try:
        return tuple(sorted(set(grp.getgrnam(group).gr_mem)))
    except KeyError:
        return ()


_HEAD = """\
#!/bin/sh
# accounts.sh: accounts, QOS and limits of Slurm equal to the rules of `gpuyard lease` when this was written.
# Run it as root once slurmdbd answers. A user who is not in it is added with:
#   sacctmgr add user NAME account=GROUP
set -eu
add() {{ # what is there already is no error
    sacctmgr --immediate --quiet add "$@" >/dev/null || true
}}
set_to() {{ # fails where there is nothing to set
    sacctmgr --immediate --quiet modify "$@" >/dev/null
}}
add cluster {cluster}
# slurmctld tells the database what a GPU is when it first starts, and it starts only in a cluster that is there
if ! sacctmgr --noheader --parsable2 show tres format=type,name | grep -q '^gres|gpu$'; then
    echo "accounts.sh: start slurmctld now, then run this again" >&2
    exit 1
fi
# what is billed is {shards} for a GPU and 1 for a hundredth of one, so that limits count both\
"""


def accounts_script(cluster: str, known: Accounts, admins: Sequence[str]) -> str:
    """What is there already stays, limits are set to what they are now; run it as often as you like."""
    lines = [_HEAD.format(cluster=cluster, shards=SHARDS), *_qos_lines(known)]
    fair_share = known.rules.fair_share
    if known.is_fair:
        lines.append(f"# whose use counts: each {fair_share}'s")
    for account in known.accounts:
        name = shlex.quote(account.group)
        most = -1 if account.most_gpus is None else account.most_gpus * SHARDS
        minutes = -1 if account.weekly_hours is None else round(account.weekly_hours * 60 * SHARDS)
        lines += [
            f"add account {name} cluster={cluster} description={name} organization={name}",
            f"set_to account {name} cluster={cluster} set GrpTRES=billing={most} "
            f"GrpTRESMins=billing={minutes} Fairshare={'parent' if fair_share == 'user' else 1}",
        ]
    first = known.accounts[0].group if known.accounts else "root"
    new = [
        SlurmUser(admin, first)
        for admin in admins
        if not any(member.user == admin for member in known.members)
    ]
    for member in (*known.members, *new):
        lines += _member_lines(cluster, member, known)
    if admins:
        lines.append("# members of the admin group may end anybody's jobs")
    lines += [f"set_to user {shlex.quote(admin)} set AdminLevel=Operator" for admin in admins]
    return "\n".join(lines) + "\n"


def _qos(priority: int) -> str:
    return f"gpuyard-priority-{priority}" if priority else "normal"


def _qos_lines(known: Accounts) -> list[str]:
    """Slurm's priorities are 0 or more; only their order counts."""
    lines = []
    for rank, priority in enumerate(known.priorities):
        qos = _qos(priority)
        lines += [f"add qos {qos}"] if priority else []
        lines.append(f"set_to qos {qos} set Priority={rank}")
    return lines


def _member_lines(cluster: str, member: SlurmUser, known: Accounts) -> list[str]:
    user, account = shlex.quote(member.user), shlex.quote(member.account)
    qos = _qos(member.priority)
    share = 1 if known.rules.fair_share == "user" else "parent"
    lines = [
        f"# {member.user} is in {group} too, whose limits Slurm does not hold them to"
        for group in member.elsewhere
    ]
    return [
        *lines,
        f"add user {user} cluster={cluster} account={account}",
        f"set_to user {user} cluster={cluster} account={account} set QOS={qos} DefaultQOS={qos} "
        f"Fairshare={share}",
        f"set_to user {user} cluster={cluster} set DefaultAccount={account}",
    ]
