# Instances at Lambda Cloud, one per machine.
terraform {
  required_providers {
    gpuyard = {
      source = "terraform.local/gpuyard/gpuyard"
    }
  }
}

variable "prefix" {
  type        = string
  description = "Prefix of the instance names, unique to this deployment."
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
  description = "Name of an ssh key in the account."
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
    machine_id      = machine.instance_id
    address         = machine.address
    private_address = machine.private_address
  }]
}
