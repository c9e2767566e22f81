# Instances of Lambda Cloud, one a machine.
terraform {
  required_providers {
    gpuyard = {
      source = "terraform.local/gpuyard/gpuyard"
    }
  }
}

variable "prefix" {
  type        = string
  description = "Of the instances' names; no other deployment has it."
}

variable "nodes" {
  type = number
}

variable "instance_type" {
  type = string
}

variable "region" {
  type = string
}

variable "ssh_key" {
  type        = string
  description = "Name of a key that the account has."
}

resource "gpuyard_lambda_instance" "node" {
  count         = var.nodes
  name          = "${var.prefix}-${count.index}"
  instance_type = var.instance_type
  region        = var.region
  ssh_key       = var.ssh_key
}

output "hosts" {
  value = [for index, machine in gpuyard_lambda_instance.node : {
    name            = "node${index}"
    address         = machine.address
    private_address = machine.private_address
  }]
}
