# Instances at AWS EC2 in their own network. From outside, only ssh to the first instance is allowed.
terraform {
  required_providers {
    aws = {
      source  = "hashicorp/aws"
      version = "~> 6.0"
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

variable "region" {
  type = string
}

variable "zone" {
  type        = string
  nullable    = true
  description = "Availability zone; AWS chooses one if it is null."
}

variable "instance_type" {
  type = string
}

variable "image" {
  type        = string
  nullable    = true
  description = "AMI; the newest Ubuntu 24.04 if it is null."
}

variable "disk_gb" {
  type = number
}

variable "efa_interfaces" {
  type        = number
  description = "Number of Elastic Fabric Adapters per machine."
}

variable "ssh_from" {
  type        = string
  description = "CIDR block from which ssh may reach the head."
}

variable "near" {
  type        = bool
  description = "Put all machines in one placement group."
}

variable "public_key" {
  type = string
}

provider "aws" {
  region = var.region
}

locals {
  network = "10.83.0.0/16"
  image   = var.image == null ? data.aws_ami.ubuntu[0].id : var.image
  # The first card also carries IP traffic; any others carry only the fabric.
  cards = range(max(var.efa_interfaces, 1))
}

data "aws_ami" "ubuntu" {
  count       = var.image == null ? 1 : 0
  most_recent = true
  owners      = ["099720109477"] # Canonical

  filter {
    name   = "name"
    values = ["ubuntu/images/hvm-ssd-gp3/ubuntu-noble-24.04-amd64-server-*"]
  }
}

resource "aws_vpc" "cluster" {
  cidr_block = local.network
  tags       = { Name = var.prefix }
}

resource "aws_subnet" "cluster" {
  vpc_id            = aws_vpc.cluster.id
  cidr_block        = local.network
  availability_zone = var.zone
  tags              = { Name = var.prefix }
}

resource "aws_internet_gateway" "cluster" {
  vpc_id = aws_vpc.cluster.id
  tags   = { Name = var.prefix }
}

resource "aws_route_table" "cluster" {
  vpc_id = aws_vpc.cluster.id
  tags   = { Name = var.prefix }

  route {
    cidr_block = "0.0.0.0/0"
    gateway_id = aws_internet_gateway.cluster.id
  }
}

resource "aws_route_table_association" "cluster" {
  subnet_id      = aws_subnet.cluster.id
  route_table_id = aws_route_table.cluster.id
}

resource "aws_security_group" "internal" {
  name        = "${var.prefix}-internal"
  description = "Allows all traffic between machines of the cluster."
  vpc_id      = aws_vpc.cluster.id
  tags        = { Name = "${var.prefix}-internal" }
}

resource "aws_vpc_security_group_ingress_rule" "internal" {
  security_group_id            = aws_security_group.internal.id
  referenced_security_group_id = aws_security_group.internal.id
  ip_protocol                  = "-1"
}

# An Elastic Fabric Adapter needs rules for its own group in both directions.
resource "aws_vpc_security_group_egress_rule" "internal" {
  security_group_id            = aws_security_group.internal.id
  referenced_security_group_id = aws_security_group.internal.id
  ip_protocol                  = "-1"
}

resource "aws_vpc_security_group_egress_rule" "outside" {
  security_group_id = aws_security_group.internal.id
  cidr_ipv4         = "0.0.0.0/0"
  ip_protocol       = "-1"
}

resource "aws_security_group" "ssh" {
  name        = "${var.prefix}-ssh"
  description = "Allows ssh to the head."
  vpc_id      = aws_vpc.cluster.id
  tags        = { Name = "${var.prefix}-ssh" }
}

resource "aws_vpc_security_group_ingress_rule" "ssh" {
  security_group_id = aws_security_group.ssh.id
  cidr_ipv4         = var.ssh_from
  ip_protocol       = "tcp"
  from_port         = 22
  to_port           = 22
}

resource "aws_key_pair" "cluster" {
  key_name   = var.prefix
  public_key = var.public_key
}

resource "aws_placement_group" "cluster" {
  count    = var.near ? 1 : 0
  name     = var.prefix
  strategy = "cluster"
}

resource "aws_launch_template" "node" {
  count         = var.nodes
  name          = "${var.prefix}-${count.index}"
  image_id      = local.image
  instance_type = var.instance_type
  key_name      = aws_key_pair.cluster.key_name

  block_device_mappings {
    device_name = "/dev/sda1"

    ebs {
      volume_size           = var.disk_gb
      volume_type           = "gp3"
      encrypted             = true
      delete_on_termination = true
    }
  }

  dynamic "network_interfaces" {
    for_each = local.cards

    content {
      device_index          = 0
      network_card_index    = network_interfaces.value
      interface_type        = var.efa_interfaces == 0 ? null : network_interfaces.value == 0 ? "efa" : "efa-only"
      subnet_id             = aws_subnet.cluster.id
      delete_on_termination = true
      security_groups       = count.index == 0 && network_interfaces.value == 0 ? [aws_security_group.internal.id, aws_security_group.ssh.id] : [aws_security_group.internal.id]
    }
  }

  dynamic "placement" {
    for_each = aws_placement_group.cluster

    content {
      group_name = placement.value.name
    }
  }

  # Require session tokens, so that a request forged through a user's program cannot read the metadata.
  metadata_options {
    http_tokens = "required"
  }

  # A newer image must not replace existing machines.
  lifecycle {
    ignore_changes = [image_id]
  }
}

resource "aws_instance" "node" {
  count = var.nodes
  tags  = { Name = "${var.prefix}-${count.index}" }

  launch_template {
    id      = aws_launch_template.node[count.index].id
    version = aws_launch_template.node[count.index].latest_version
  }
}

# Machines with several network cards get no public address otherwise, and could not download packages.
resource "aws_eip" "node" {
  count             = var.nodes
  network_interface = aws_instance.node[count.index].primary_network_interface_id
  tags              = { Name = "${var.prefix}-${count.index}" }
  depends_on        = [aws_internet_gateway.cluster]
}

output "hosts" {
  value = [for index, machine in aws_instance.node : {
    name            = "node${index}"
    machine_id      = machine.id
    address         = index == 0 ? aws_eip.node[0].public_ip : machine.private_ip
    private_address = machine.private_ip
  }]
}
