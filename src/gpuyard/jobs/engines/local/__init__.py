"""Jobs on this machine: each is a lease. Nothing here is a server: the store is a file, and who looks brings it up to date.

    submit ──► store ◄── runner (one a user) ──► supervisor (one a start) ──► the job's command

The runner decides what starts. A supervisor waits for a lease, runs the command on it and writes down how it ended. It
outlives the runner, and the kernel says whether it lives: it and all that it starts hold the lock of their start.
"""
