# Servers of an OpenStack in a network of their own behind a router: ssh comes in at the first one, which has a
# floating address, and nothing else from outside.
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
  description = "Of all names; no other deployment has it."
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
  description = "Name of the network that has the floating addresses."
}

variable "name_servers" {
  type = list(string)
}

variable "ssh_from" {
  type        = string
  description = "Addresses from which ssh reaches the head."
}

variable "near" {
  type        = bool
  description = "A server group for all machines."
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

resource "openstack_networking_secgroup_v2" "inside" {
  name        = "${var.prefix}-inside"
  description = "Machines of one cluster talk to each other."
}

resource "openstack_networking_secgroup_rule_v2" "inside" {
  direction         = "ingress"
  ethertype         = "IPv4"
  remote_group_id   = openstack_networking_secgroup_v2.inside.id
  security_group_id = openstack_networking_secgroup_v2.inside.id
}

resource "openstack_networking_secgroup_v2" "door" {
  name        = "${var.prefix}-door"
  description = "ssh to the head."
}

resource "openstack_networking_secgroup_rule_v2" "door" {
  direction         = "ingress"
  ethertype         = "IPv4"
  protocol          = "tcp"
  port_range_min    = 22
  port_range_max    = 22
  remote_ip_prefix  = var.ssh_from
  security_group_id = openstack_networking_secgroup_v2.door.id
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
  security_group_ids = count.index == 0 ? [openstack_networking_secgroup_v2.inside.id, openstack_networking_secgroup_v2.door.id] : [openstack_networking_secgroup_v2.inside.id]

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
}

resource "openstack_networking_floatingip_v2" "head" {
  pool       = var.external_network
  port_id    = openstack_networking_port_v2.node[0].id
  depends_on = [openstack_networking_router_interface_v2.cluster, openstack_compute_instance_v2.node]
}

output "hosts" {
  value = [for index, machine in openstack_compute_instance_v2.node : {
    name            = "node${index}"
    address         = index == 0 ? openstack_networking_floatingip_v2.head.address : openstack_networking_port_v2.node[index].all_fixed_ips[0]
    private_address = openstack_networking_port_v2.node[index].all_fixed_ips[0]
  }]
}
