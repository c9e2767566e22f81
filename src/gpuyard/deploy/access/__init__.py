"""How people work on a deployment from their own machine: ssh entries, and a folder that is copied."""
