# Machines on this host: a network of its own with shaped links, and a host in each of its nodes.
terraform {
  required_providers {
    gpuyard = {
      source = "terraform.local/gpuyard/gpuyard"
    }
  }
}

variable "name" {
  type        = string
  description = "Of the lab, and of the deployment."
}

variable "nodes" {
  type = number
}

variable "link" {
  type        = string
  description = "Rate of each node's link, like 1 Gbit/s."
}

variable "disks" {
  type        = string
  description = "Directory in which each machine has its disk."
}

variable "authorized_key" {
  type = string
}

variable "gpus" {
  type        = number
  description = "Stand-ins for GPUs in each machine."
}

variable "packages" {
  type        = list(string)
  description = "Debian packages that each machine has beside the usual ones."
}

variable "release" {
  type        = string
  default     = null
  description = "Release of Debian or Ubuntu; without it this host's own."
}

variable "mounts" {
  type        = list(string)
  description = "Directories of this host that each machine sees at the same path, read-only."
}

resource "gpuyard_lab" "network" {
  name  = var.name
  nodes = var.nodes
  link  = var.link
}

resource "gpuyard_lab_machine" "node" {
  count          = var.nodes
  lab            = gpuyard_lab.network.name
  node           = count.index
  directory      = "${var.disks}/node${count.index}"
  authorized_key = var.authorized_key
  gpus           = var.gpus
  packages       = var.packages
  release        = var.release
  mounts         = var.mounts
}

output "hosts" {
  value = [for machine in gpuyard_lab_machine.node : {
    name          = machine.name
    address       = machine.address
    host_key      = machine.host_key
    proxy_command = machine.proxy_command
  }]
}
