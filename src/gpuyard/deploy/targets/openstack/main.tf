# Servers in an OpenStack cloud, in their own network behind a router. From outside, only ssh to the first server is
# allowed, through its floating IP address.
terraform {
  required_providers {
    openstack = {
      source  = "terraform-provider-openstack/openstack"
      version = "~> 3.0"
    }
  }
}

variable "prefix" {
  type        = string
  description = "Prefix of all resource names, unique to this deployment."
}

variable "nodes" {
  type = number
}

variable "flavor" {
  type = string
}

variable "image" {
  type = string
}

variable "external_network" {
  type        = string
  description = "Name of the network that provides floating IP addresses."
}

variable "name_servers" {
  type = list(string)
}

variable "ssh_from" {
  type        = string
  description = "CIDR block from which ssh may reach the head."
}

variable "near" {
  type        = bool
  description = "Put all machines in one server group."
}

variable "public_key" {
  type = string
}

provider "openstack" {
}

data "openstack_networking_network_v2" "outside" {
  name = var.external_network
}

resource "openstack_networking_network_v2" "cluster" {
  name           = var.prefix
  admin_state_up = true
}

resource "openstack_networking_subnet_v2" "cluster" {
  name            = var.prefix
  network_id      = openstack_networking_network_v2.cluster.id
  cidr            = "10.83.0.0/16"
  ip_version      = 4
  dns_nameservers = var.name_servers
}

resource "openstack_networking_router_v2" "cluster" {
  name                = var.prefix
  admin_state_up      = true
  external_network_id = data.openstack_networking_network_v2.outside.id
}

resource "openstack_networking_router_interface_v2" "cluster" {
  router_id = openstack_networking_router_v2.cluster.id
  subnet_id = openstack_networking_subnet_v2.cluster.id
}

resource "openstack_networking_secgroup_v2" "internal" {
  name        = "${var.prefix}-internal"
  description = "Allows all traffic between machines of the cluster."
}

resource "openstack_networking_secgroup_rule_v2" "internal" {
  direction         = "ingress"
  ethertype         = "IPv4"
  remote_group_id   = openstack_networking_secgroup_v2.internal.id
  security_group_id = openstack_networking_secgroup_v2.internal.id
}

resource "openstack_networking_secgroup_v2" "ssh" {
  name        = "${var.prefix}-ssh"
  description = "Allows ssh to the head."
}

resource "openstack_networking_secgroup_rule_v2" "ssh" {
  direction         = "ingress"
  ethertype         = "IPv4"
  protocol          = "tcp"
  port_range_min    = 22
  port_range_max    = 22
  remote_ip_prefix  = var.ssh_from
  security_group_id = openstack_networking_secgroup_v2.ssh.id
}

resource "openstack_compute_keypair_v2" "cluster" {
  name       = var.prefix
  public_key = var.public_key
}

resource "openstack_compute_servergroup_v2" "near" {
  count    = var.near ? 1 : 0
  name     = var.prefix
  policies = ["soft-affinity"]
}

resource "openstack_networking_port_v2" "node" {
  count              = var.nodes
  name               = "${var.prefix}-${count.index}"
  network_id         = openstack_networking_network_v2.cluster.id
  admin_state_up     = true
  security_group_ids = count.index == 0 ? [openstack_networking_secgroup_v2.internal.id, openstack_networking_secgroup_v2.ssh.id] : [openstack_networking_secgroup_v2.internal.id]

  fixed_ip {
    subnet_id = openstack_networking_subnet_v2.cluster.id
  }
}

resource "openstack_compute_instance_v2" "node" {
  count       = var.nodes
  name        = "${var.prefix}-${count.index}"
  flavor_name = var.flavor
  image_name  = var.image
  key_pair    = openstack_compute_keypair_v2.cluster.name

  network {
    port = openstack_networking_port_v2.node[count.index].id
  }

  dynamic "scheduler_hints" {
    for_each = openstack_compute_servergroup_v2.near

    content {
      group = scheduler_hints.value.id
    }
  }

  # A newer image with the same name, or the removal of the old one, must not replace existing machines.
  lifecycle {
    ignore_changes = [image_id, image_name]
  }
}

resource "openstack_networking_floatingip_v2" "head" {
  pool       = var.external_network
  port_id    = openstack_networking_port_v2.node[0].id
  depends_on = [openstack_networking_router_interface_v2.cluster, openstack_compute_instance_v2.node]
}

output "hosts" {
  value = [for index, machine in openstack_compute_instance_v2.node : {
    name            = "node${index}"
    machine_id      = machine.id
    address         = index == 0 ? openstack_networking_floatingip_v2.head.address : openstack_networking_port_v2.node[index].all_fixed_ips[0]
    private_address = openstack_networking_port_v2.node[index].all_fixed_ips[0]
  }]
}
