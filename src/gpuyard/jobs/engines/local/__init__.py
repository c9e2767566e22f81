"""Jobs on this machine. Each start of a job runs on a lease; there is no server.

    submit ──► store ◄── runner (one per user) ──► supervisor (one per start) ──► the job's command
                 ▲                                      │
                 └──────────── its transitions ─────────┘

The store is one SQLite file. The runner starts and stops jobs as the share decides. The supervisor of a start gets a lease,
runs the command, and commits each transition itself; it outlives the runner. One lock per start, held by the supervisor
and all processes it starts, tells whether the start is alive. If the store has a start in progress and the kernel has
freed its lock, the start is over: with the outcome that its supervisor committed or its recorder wrote, otherwise it is lost.
"""
