# Emulated machines on this host: a network with shaped links, and a machine on each of its nodes.
terraform {
  required_providers {
    gpuyard = {
      source = "terraform.local/gpuyard/gpuyard"
    }
  }
}

variable "name" {
  type        = string
  description = "Name of the lab, which is also the deployment's."
}

variable "nodes" {
  type = number
}

variable "rate_bytes_per_second" {
  type        = number
  description = "Rate of each node's link in each direction, in bytes per second."
}

variable "disks" {
  type        = string
  description = "Directory for the machines' disks."
}

variable "authorized_key" {
  type = string
}

variable "gpus" {
  type        = number
  description = "Number of GPU stand-ins per machine."
}

variable "packages" {
  type        = list(string)
  description = "Additional Debian packages for each machine."
}

variable "release" {
  type        = string
  default     = null
  description = "Debian or Ubuntu release; this host's release by default."
}

variable "mounts" {
  type        = list(string)
  description = "Directories of this host that each machine sees read-only at the same path."
}

variable "shared" {
  type        = string
  description = "Directory of this host that all machines share as /srv/shared."
}

resource "gpuyard_lab" "network" {
  name                  = var.name
  nodes                 = var.nodes
  rate_bytes_per_second = var.rate_bytes_per_second
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
  shared         = var.shared
}

output "hosts" {
  value = [for machine in gpuyard_lab_machine.node : {
    name          = machine.name
    address       = machine.address
    host_key      = machine.host_key
    proxy_command = machine.proxy_command
  }]
}
