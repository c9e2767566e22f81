# Jobs of imec's GPULab, one a machine.
terraform {
  required_providers {
    gpuyard = {
      source = "terraform.local/gpuyard/gpuyard"
    }
  }
}

variable "project" {
  type = string
}

variable "definitions" {
  type        = list(string)
  description = "One job's definition for each machine, as JSON."
}

resource "gpuyard_gpulab_job" "node" {
  count      = length(var.definitions)
  project    = var.project
  definition = var.definitions[count.index]
}

output "hosts" {
  value = [for index, job in gpuyard_gpulab_job.node : {
    name          = "node${index}"
    address       = job.address
    port          = job.port
    user          = job.user
    proxy_command = job.proxy_command
  }]
}
