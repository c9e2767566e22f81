"""From a description to a cluster that trains: Terraform makes machines, Ansible configures them, a check measures them."""
