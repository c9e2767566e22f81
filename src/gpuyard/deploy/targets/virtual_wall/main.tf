# A slice of imec's Virtual Wall with all machines and their network.
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

variable "lifetime_hours" {
  type        = number
  description = "Hours after which the testbed deletes the slice."
}

variable "request" {
  type        = string
  description = "Request RSpec, GENI version 3."
}

resource "gpuyard_virtual_wall_slice" "slice" {
  name           = var.name
  project        = var.project
  lifetime_hours = var.lifetime_hours
  request        = var.request
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
