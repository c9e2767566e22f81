"""Places for the workers of a run: this machine, a lab's nodes, other hosts, or a Slurm allocation."""

from gpuyard.run.places.hosts import Hosts, reach_hosts
from gpuyard.run.places.lab import LabNodes, open_lab
from gpuyard.run.places.local_machine import LocalMachine
from gpuyard.run.places.place import Place
from gpuyard.run.places.slurm import SlurmAllocation, find_allocation

__all__ = [
    "Hosts",
    "LabNodes",
    "LocalMachine",
    "Place",
    "SlurmAllocation",
    "find_allocation",
    "open_lab",
    "reach_hosts",
]
