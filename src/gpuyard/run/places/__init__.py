"""Where the workers of a run are: on this machine, on a lab's nodes, on hosts, in a Slurm allocation."""

from gpuyard.run.places.here import Here
from gpuyard.run.places.hosts import Hosts, reach_hosts
from gpuyard.run.places.lab import LabNodes
from gpuyard.run.places.place import Place
from gpuyard.run.places.slurm import SlurmAllocation, allocation

__all__ = ["Here", "Hosts", "LabNodes", "Place", "SlurmAllocation", "allocation", "reach_hosts"]
