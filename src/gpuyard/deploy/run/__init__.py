"""Run a command on a deployment's machines: copy the folder, start the command, follow its log, fetch its results."""
