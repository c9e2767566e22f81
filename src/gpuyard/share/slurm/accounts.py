"""The share's rules as a script of `sacctmgr` commands: an account for each Unix group, and a QOS for each priority."""

import grp
import pwd
import shlex
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from gpuyard.share.caller import groups_of
from gpuyard.share.config import Rules
from gpuyard.share.models import Lease

SHARDS = 100
"""Shards per GPU, for leases of less than a whole GPU and for billing."""


@dataclass(frozen=True)
class SlurmUser:
    """A Slurm user; all of a user's jobs belong to one account."""

    user: str
    account: str
    priority: int = 0
    other_groups: tuple[str, ...] = ()
    """The user's other groups with limits, which Slurm cannot enforce."""


@dataclass(frozen=True)
class Accounts:
    """The Unix groups that become accounts, all users, and the current rules."""

    groups: tuple[str, ...] = ()
    members: tuple[SlurmUser, ...] = ()
    rules: Rules = field(default_factory=Rules)

    @property
    def need_database(self) -> bool:
        """True if Slurm needs its database to enforce these rules."""
        rules = self.rules
        limits = rules.weekly_hours or rules.quotas or rules.max_gpus_per_user is not None
        return bool(limits or self.priorities or self.has_fair_share)

    @property
    def has_fair_share(self) -> bool:
        return self.rules.half_life_seconds is not None

    @property
    def priorities(self) -> tuple[int, ...]:
        """All priorities, lowest first; empty if there is only one."""
        priorities = {0, *self.rules.priorities.values()}
        return tuple(sorted(priorities)) if len(priorities) > 1 else ()


def collect_accounts(
    leases: Iterable[Lease],
    rules: Rules | None = None,
    groups: Callable[[int], frozenset[str]] = groups_of,
) -> Accounts:
    """Collect all users who have leased GPUs, and all members of the groups that have rules."""
    rules = rules or Rules()
    groups_with_rules = {*rules.quotas, *rules.weekly_hours, *rules.priorities}
    uids = {name: uid for group in groups_with_rules for name, uid in _list_members(group)}
    main_groups = {name: _main_group(uid) for name, uid in uids.items()}
    for lease in leases:
        uids[lease.user], main_groups[lease.user] = lease.uid, lease.group
    members = [_create_user(n, main_groups[n], groups(uids[n]), rules) for n in sorted(uids)]
    accounts = {*rules.quotas, *rules.weekly_hours, *(member.account for member in members)}
    return Accounts(tuple(sorted(accounts)), tuple(members), rules)


def _create_user(user: str, main_group: str, groups: frozenset[str], rules: Rules) -> SlurmUser:
    """Assign a user to the group with the strictest limit, or to the main group if there is none."""
    limited = sorted(
        groups & {*rules.quotas, *rules.weekly_hours},
        key=lambda group: (rules.quotas.get(group, 1 << 30), group),
    )
    account = limited[0] if limited else main_group
    return SlurmUser(user, account, rules.priority(groups), tuple(limited[1:]))


def _list_members(group: str) -> list[tuple[str, int]]:
    """List the users with this main or supplementary group."""
    try:
        entry = grp.getgrnam(group)
    except KeyError:
        return []
    users = {
        (user.pw_name, user.pw_uid)
        for user in pwd.getpwall()
        if user.pw_gid == entry.gr_gid or user.pw_name in entry.gr_mem
    }
    return sorted(users)


def _main_group(uid: int) -> str:
    return grp.getgrgid(pwd.getpwuid(uid).pw_gid).gr_name


def list_admins(group: str) -> tuple[str, ...]:
    """List the members of the admin group."""
    try:
        return tuple(sorted(set(grp.getgrnam(group).gr_mem)))
    except KeyError:
        return ()


_HEAD = """\
#!/bin/sh
# accounts.sh: Slurm accounts, QOS, and limits that match the rules of `gpuyard lease` at the time of export.
# Run it as root once slurmdbd is up; you can run it again at any time. To add another user:
#   sacctmgr add user NAME account=GROUP
set -eu
add() {{ # Ignore entries that already exist.
    sacctmgr --immediate --quiet add "$@" >/dev/null || true
}}
set_to() {{ # Fail if the entry does not exist.
    sacctmgr --immediate --quiet modify "$@" >/dev/null
}}
add cluster {cluster}
# slurmctld registers GPUs in the database when it first starts, which requires the cluster to exist.
if ! sacctmgr --noheader --parsable2 show tres format=type,name | grep -q '^gres|gpu$'; then
    echo "accounts.sh: start slurmctld now, then run this script again" >&2
    exit 1
fi
# Billing counts {shards} for a GPU and 1 for a shard, so that limits cover both.\
"""


def render_accounts_script(cluster: str, accounts: Accounts, admins: Sequence[str]) -> str:
    """Render a script that adds missing entries and updates all limits."""
    lines = [_HEAD.format(cluster=cluster, shards=SHARDS)]
    for rank, priority in enumerate(accounts.priorities):  # Slurm's priorities are not negative.
        qos = _qos_name(priority)
        lines += [f"add qos {qos}"] if priority else []
        lines.append(f"set_to qos {qos} set Priority={rank}")
    rules = accounts.rules
    if rules.max_gpus_per_user is not None:
        limit = f"MaxTRESPerUser=billing={rules.max_gpus_per_user * SHARDS}"
        lines += [
            f"set_to qos {_qos_name(priority)} set {limit}"
            for priority in accounts.priorities or (0,)
        ]
    if accounts.has_fair_share:
        lines.append(f"# Fair share counts the usage of each {rules.fair_share}.")
    for group in accounts.groups:
        name, quota, hours = (
            shlex.quote(group),
            rules.quotas.get(group),
            rules.weekly_hours.get(group),
        )
        billing = -1 if quota is None else quota * SHARDS
        minutes = -1 if hours is None else round(hours * 60 * SHARDS)
        share = "parent" if rules.fair_share == "user" else 1
        lines += [
            f"add account {name} cluster={cluster} description={name} organization={name}",
            f"set_to account {name} cluster={cluster} set GrpTRES=billing={billing} "
            f"GrpTRESMins=billing={minutes} Fairshare={share}",
        ]
    default_account = accounts.groups[0] if accounts.groups else "root"
    users = {member.user for member in accounts.members}
    new = [SlurmUser(admin, default_account) for admin in admins if admin not in users]
    for member in (*accounts.members, *new):
        lines += _render_member(cluster, member, rules.fair_share)
    if admins:
        lines.append("# Members of the admin group may cancel all users' jobs.")
    lines += [f"set_to user {shlex.quote(admin)} set AdminLevel=Operator" for admin in admins]
    return "\n".join(lines) + "\n"


def _qos_name(priority: int) -> str:
    return f"gpuyard-priority-{priority}" if priority else "normal"


def _render_member(cluster: str, member: SlurmUser, fair_share: str) -> list[str]:
    user, account = shlex.quote(member.user), shlex.quote(member.account)
    qos = _qos_name(member.priority)
    share = 1 if fair_share == "user" else "parent"
    return [
        *(
            f"# {member.user} is also in {group}; Slurm does not apply that group's limits to this user."
            for group in member.other_groups
        ),
        f"add user {user} cluster={cluster} account={account}",
        f"set_to user {user} cluster={cluster} account={account} set QOS={qos} DefaultQOS={qos} "
        f"Fairshare={share}",
        f"set_to user {user} cluster={cluster} set DefaultAccount={account}",
    ]
