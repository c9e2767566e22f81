"""One small file a verb; heavy imports happen inside the commands, so that `--help` is quick."""
