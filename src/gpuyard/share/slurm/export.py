"""A share's GPUs and rules as the files that Slurm reads."""

import os
import re
import socket
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from gpuyard.errors import GpuyardError
from gpuyard.share.isolation.devices import device_file
from gpuyard.share.slurm.accounts import SHARDS, Accounts, accounts_script
from gpuyard.share.store.config import ShareConfig, SharedGpu

PARTITION = "gpus"
_CLUSTER = "gpuyard"
_FAKE_DEVICES = "test-gpus"

_SLURM = """\
# slurm.conf: Slurm for the GPUs of {host}, with the rules that `gpuyard lease` had when this was written by
# `gpuyard share export slurm`. It belongs in /etc/slurm, beside gres.conf and cgroup.conf. Directories are Debian's.
ClusterName={cluster}
# both daemons are on this machine; with a second one, name an address that it reaches instead of 127.0.0.1
SlurmctldHost={host}(127.0.0.1)
SlurmUser=slurm
AuthType=auth/munge
StateSaveLocation=/var/lib/slurm/slurmctld
SlurmdSpoolDir=/var/lib/slurm/slurmd
SlurmctldLogFile=/var/log/slurm/slurmctld.log
SlurmdLogFile=/var/log/slurm/slurmd.log
SlurmctldPidFile=/run/slurmctld.pid
SlurmdPidFile=/run/slurmd.pid
# after a reboot the machine serves again by itself
ReturnToService=2

# GPUs and parts of them are handed out; cores and memory are shared by all, as before
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
GresTypes=gpu,shard
{isolation}

# who comes first is served first, and nobody overtakes a larger request that came before
SchedulerType=sched/builtin
{priority}
# a lease whose launcher was killed does not stay
InactiveLimit=60
# seconds from asking a process to end to ending it
KillWait={grace}

{accounting}

NodeName={host} NodeAddr=127.0.0.1 CPUs={cpus} Gres={gres}
PartitionName={partition} Nodes={host} Default=YES MaxTime=INFINITE OverSubscribe=FORCE:{jobs} State=UP{billing}
"""
_ISOLATED = """\
# a job can open only its own GPUs: see cgroup.conf
ProctrackType=proctrack/cgroup
TaskPlugin=task/cgroup"""
_NOT_ISOLATED = """\
# test GPUs are no devices that could be closed to others
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none"""
_IN_ORDER = "PriorityType=priority/basic"
_BY_RULES = """\
# priority first (the QOS of a user, see accounts.sh), then who used less lately, then who came first
PriorityType=priority/multifactor
PriorityWeightQOS={qos}
PriorityWeightFairshare={fair_share}
PriorityWeightAge=1000
PriorityDecayHalfLife={half_life}"""
_WEEKLY = """\

# GPU-hours of a group are counted from Sunday to Sunday, not in the last 7 days; and where a group reaches its limit Slurm
# ends its jobs, while gpuyard lets running leases go on
PriorityUsageResetPeriod=WEEKLY"""
_NO_ACCOUNTING = """\
# no limits, so no database is needed; with slurmdbd running, use these three lines and run accounts.sh
#AccountingStorageType=accounting_storage/slurmdbd
#AccountingStorageHost=localhost
#AccountingStorageTRES=gres/gpu,gres/shard"""
_ACCOUNTING = """\
# limits and priorities are in Slurm's database: start slurmdbd first, then run accounts.sh
AccountingStorageType=accounting_storage/slurmdbd
AccountingStorageHost=localhost
AccountingStorageTRES=gres/gpu,gres/shard
AccountingStorageEnforce=associations,limits,qos"""


_BILLING = f' TRESBillingWeights="CPU=0,Mem=0,GRES/gpu={SHARDS},GRES/shard=1"'


@dataclass(frozen=True)
class SlurmFiles:
    """What is written, by name; `devices` stand for test GPUs and are empty."""

    texts: Mapping[str, str]
    devices: tuple[str, ...] = ()


def slurm_files(
    config: ShareConfig,
    output: Path,
    accounts: Accounts | None = None,
    admins: Sequence[str] = (),
) -> SlurmFiles:
    """All files for this machine."""
    accounts = accounts or Accounts()
    host = socket.gethostname().partition(".")[0]
    fake = any(gpu.fake for gpu in config.gpus)
    kinds = Counter(_kind(gpu) for gpu in config.gpus)
    shards = SHARDS * len(config.gpus)
    slurm = _SLURM.format(
        host=host,
        cluster=_CLUSTER,
        isolation=_NOT_ISOLATED if fake else _ISOLATED,
        priority=_order(accounts),
        grace=max(1, round(config.grace_seconds)),
        accounting=_ACCOUNTING if accounts.limited else _NO_ACCOUNTING,
        cpus=os.cpu_count() or 1,
        gres=",".join(f"gpu:{kind}:{count}" for kind, count in kinds.items()) + f",shard:{shards}",
        partition=PARTITION,
        jobs=min(shards, 1000),
        billing=_BILLING if accounts.limited else "",
    )
    devices = {gpu.index: _device(gpu, output) for gpu in config.gpus}
    gres = (
        "# gres.conf: the device of each GPU, in the order of nvidia-smi or rocm-smi, and what a GPU is divided into\n"
        + "".join(f"Name=gpu Type={_kind(gpu)} File={devices[gpu.index]}\n" for gpu in config.gpus)
        + f"Name=shard Count={shards}\n"
    )
    cgroup = (
        "# cgroup.conf: what the kernel holds jobs to. Only devices; ConstrainCores=yes and ConstrainRAMSpace=yes\n"
        "# would hold them to the cores and the memory that they ask for as well\n"
        f"ConstrainDevices={'no' if fake else 'yes'}\n"
    )
    texts = {
        "slurm.conf": slurm,
        "gres.conf": gres,
        "cgroup.conf": cgroup,
        "accounts.sh": accounts_script(_CLUSTER, accounts, admins),
    }
    made = tuple(f"{_FAKE_DEVICES}/gpu{gpu.index}" for gpu in config.gpus if gpu.fake)
    return SlurmFiles(texts, made)


def _order(accounts: Accounts) -> str:
    if not accounts.limited:
        return _IN_ORDER
    return _BY_RULES.format(
        qos=1_000_000_000 if accounts.priorities else 0,
        fair_share=1_000_000 if accounts.is_fair else 0,
        half_life=_duration(accounts.rules.half_life_seconds or 0.0),
    ) + (_WEEKLY if accounts.limits_hours else "")


def _duration(seconds: float) -> str:
    """As Slurm writes it: 90061 → "1-01:01:01"."""
    minutes, second = divmod(round(seconds), 60)
    hours, minute = divmod(minutes, 60)
    return f"{hours // 24}-{hours % 24:02}:{minute:02}:{second:02}"


def write_files(files: SlurmFiles, output: Path) -> None:
    """Each in one step, for everybody to read."""
    from gpuyard.files import make_directory, write_text

    make_directory(output)
    for name in files.devices:
        make_directory((output / name).parent)
        _make_device(output / name)
    for name, text in files.texts.items():
        write_text(output / name, text, mode=0o755 if name.endswith(".sh") else 0o644)


def _make_device(path: Path) -> None:
    """As /dev/null: Slurm only hands out its number, and takes nothing else for a device."""
    path.unlink(missing_ok=True)
    try:
        os.mknod(path, 0o020_666, os.makedev(1, 3))
    except OSError as error:
        raise GpuyardError(
            f"{path} can't be made ({error.strerror}); devices that stand for test GPUs are made by root"
        ) from error


def _kind(gpu: SharedGpu) -> str:
    """As Slurm can have it in a name: "NVIDIA A100-SXM4-80GB" → "nvidia_a100-sxm4-80gb"."""
    return re.sub(r"[^a-z0-9-]+", "_", gpu.name.lower()).strip("_") or "gpu"


def _device(gpu: SharedGpu, output: Path) -> str:
    if gpu.fake:
        return str(output.absolute() / _FAKE_DEVICES / f"gpu{gpu.index}")
    return device_file(gpu)
