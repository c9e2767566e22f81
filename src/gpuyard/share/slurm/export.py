"""The share's GPUs and rules as Slurm's configuration files."""

import os
import re
import socket
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from gpuyard.errors import GpuyardError
from gpuyard.files import create_directory, write_text
from gpuyard.share.config import ShareConfig, SharedGpu
from gpuyard.share.devices import device_file
from gpuyard.share.slurm.accounts import SHARDS, Accounts, render_accounts_script
from gpuyard.slurm.client import format_duration

PARTITION = "gpus"
_CLUSTER = "gpuyard"
_FAKE_DEVICES = "test-gpus"

_SLURM = """\
# slurm.conf: Slurm for the GPUs of {host}, with the rules of `gpuyard lease` at the time of export.
# Written by `gpuyard share export slurm`. Copy it to /etc/slurm with gres.conf and cgroup.conf. Paths are Debian's.
ClusterName={cluster}
# Both daemons run on this machine. For a second machine, replace 127.0.0.1 with an address that it can reach.
SlurmctldHost={host}(127.0.0.1)
SlurmUser=slurm
AuthType=auth/munge
StateSaveLocation=/var/lib/slurm/slurmctld
SlurmdSpoolDir=/var/lib/slurm/slurmd
SlurmctldLogFile=/var/log/slurm/slurmctld.log
SlurmdLogFile=/var/log/slurm/slurmd.log
SlurmctldPidFile=/run/slurmctld.pid
SlurmdPidFile=/run/slurmd.pid
# The machine returns to service by itself after a reboot.
ReturnToService=2

# Slurm allocates GPUs and shards; all jobs share cores and memory, as before.
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
GresTypes=gpu,shard
{isolation}

# First come, first served: no job overtakes an earlier, larger request.
SchedulerType=sched/builtin
{priority}
# Release a lease whose launcher was killed.
InactiveLimit=60
# Seconds between SIGTERM and SIGKILL.
KillWait={grace}

{accounting}

NodeName={host} NodeAddr=127.0.0.1 CPUs={cpus} Gres={gres}
PartitionName={partition} Nodes={host} Default=YES MaxTime={max_time} OverSubscribe=FORCE:{jobs} State=UP{billing}
"""
_ISOLATED = """\
# A job can open only its own GPUs; see cgroup.conf.
ProctrackType=proctrack/cgroup
TaskPlugin=task/cgroup"""
_NOT_ISOLATED = """\
# Test GPUs have no devices to isolate.
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none"""
_IN_ORDER = "PriorityType=priority/basic"
_BY_RULES = """\
# Order: priority (the user's QOS, see accounts.sh), then lowest recent usage, then submission time.
PriorityType=priority/multifactor
PriorityWeightQOS={qos}
PriorityWeightFairshare={fair_share}
PriorityWeightAge=1000
PriorityDecayHalfLife={half_life}"""
_WEEKLY = """\

# Slurm counts a group's GPU hours from Sunday to Sunday; gpuyard counts the last 7 days. At the limit, Slurm stops the
# group's jobs; gpuyard lets running leases continue.
PriorityUsageResetPeriod=WEEKLY"""
_NO_ACCOUNTING = """\
# There are no limits, so no database is needed. To use slurmdbd, enable these three lines and run accounts.sh.
#AccountingStorageType=accounting_storage/slurmdbd
#AccountingStorageHost=localhost
#AccountingStorageTRES=gres/gpu,gres/shard"""
_ACCOUNTING = """\
# Limits and priorities are in Slurm's database: start slurmdbd first, then run accounts.sh.
AccountingStorageType=accounting_storage/slurmdbd
AccountingStorageHost=localhost
AccountingStorageTRES=gres/gpu,gres/shard
AccountingStorageEnforce=associations,limits,qos"""
_BILLING = f' TRESBillingWeights="CPU=0,Mem=0,GRES/gpu={SHARDS},GRES/shard=1"'


@dataclass(frozen=True)
class SlurmFiles:
    """The configuration files by name, and the paths of devices that stand for test GPUs."""

    texts: Mapping[str, str]
    devices: tuple[str, ...] = ()


def render_slurm_files(
    config: ShareConfig,
    output: Path,
    accounts: Accounts | None = None,
    admins: Sequence[str] = (),
) -> SlurmFiles:
    """Render all configuration files for this machine."""
    accounts = accounts or Accounts()
    fake = any(gpu.fake for gpu in config.gpus)
    gpu_types = Counter(_slurm_type(gpu) for gpu in config.gpus)
    shards = SHARDS * len(config.gpus)
    longest = accounts.rules.max_lease_seconds
    gres = [f"gpu:{gpu_type}:{count}" for gpu_type, count in gpu_types.items()]
    slurm = _SLURM.format(
        host=socket.gethostname().partition(".")[0],
        cluster=_CLUSTER,
        isolation=_NOT_ISOLATED if fake else _ISOLATED,
        priority=_render_priority(accounts),
        grace=max(1, round(config.grace_seconds)),
        accounting=_ACCOUNTING if accounts.need_database else _NO_ACCOUNTING,
        cpus=os.cpu_count() or 1,
        gres=",".join([*gres, f"shard:{shards}"]),
        partition=PARTITION,
        max_time=format_duration(longest) if longest else "INFINITE",
        jobs=min(shards, 1000),
        billing=_BILLING if accounts.need_database else "",
    )
    fakes = {gpu.index: f"{_FAKE_DEVICES}/gpu{gpu.index}" for gpu in config.gpus if gpu.fake}
    devices = "".join(
        f"Name=gpu Type={_slurm_type(gpu)} "
        f"File={output.absolute() / fakes[gpu.index] if gpu.fake else device_file(gpu)}\n"
        for gpu in config.gpus
    )
    texts = {
        "slurm.conf": slurm,
        "gres.conf": "# gres.conf: the device of each GPU, in the order of nvidia-smi or rocm-smi, and the shards\n"
        f"{devices}Name=shard Count={shards}\n",
        "cgroup.conf": "# cgroup.conf: the kernel restricts jobs to their devices. ConstrainCores=yes and\n"
        "# ConstrainRAMSpace=yes would also restrict them to their cores and memory.\n"
        f"ConstrainDevices={'no' if fake else 'yes'}\n",
        "accounts.sh": render_accounts_script(_CLUSTER, accounts, admins),
    }
    return SlurmFiles(texts, tuple(fakes.values()))


def _render_priority(accounts: Accounts) -> str:
    if not accounts.need_database:
        return _IN_ORDER
    return _BY_RULES.format(
        qos=1_000_000_000 if accounts.priorities else 0,
        fair_share=1_000_000 if accounts.has_fair_share else 0,
        half_life=format_duration(accounts.rules.half_life_seconds or 0.0),
    ) + (_WEEKLY if accounts.rules.weekly_hours else "")


def write_slurm_files(files: SlurmFiles, output: Path) -> None:
    """Write each file atomically and readable for all users."""
    create_directory(output)
    for name in files.devices:
        create_directory((output / name).parent)
        _create_device(output / name)
    for name, text in files.texts.items():
        write_text(output / name, text, mode=0o755 if name.endswith(".sh") else 0o644)


def _create_device(path: Path) -> None:
    """Create a copy of /dev/null: Slurm accepts only device files, and passes only their index to jobs."""
    path.unlink(missing_ok=True)
    try:
        os.mknod(path, 0o020_666, os.makedev(1, 3))
    except OSError as error:
        raise GpuyardError(
            f"{path} cannot be created ({error.strerror}); run this as root to create devices for test GPUs"
        ) from error


def _slurm_type(gpu: SharedGpu) -> str:
    """Convert a name to a Slurm GPU type: "NVIDIA A100-SXM4-80GB" → "nvidia_a100-sxm4-80gb"."""
    return re.sub(r"[^a-z0-9-]+", "_", gpu.name.lower()).strip("_") or "gpu"
