"""Work on a deployment from your own machine: ssh entries, remote commands, notebooks, and copies of local folders."""
