# One slice of imec's Virtual Wall with all machines and their network.
terraform {
  required_providers {
    gpuyard = {
      source = "terraform.local/gpuyard/gpuyard"
    }
  }
}

variable "name" {
  type = string
}

variable "project" {
  type = string
}

variable "hours" {
  type        = number
  description = "After which the testbed ends it."
}

variable "request" {
  type        = string
  description = "In GENI's RSpec, version 3."
}

resource "gpuyard_virtual_wall_slice" "slice" {
  name    = var.name
  project = var.project
  hours   = var.hours
  request = var.request
}

output "hosts" {
  value = [for index, name in gpuyard_virtual_wall_slice.slice.names : {
    name            = name
    address         = gpuyard_virtual_wall_slice.slice.addresses[index]
    port            = gpuyard_virtual_wall_slice.slice.ports[index]
    user            = gpuyard_virtual_wall_slice.slice.users[index]
    private_address = gpuyard_virtual_wall_slice.slice.private_addresses[index]
  }]
}
