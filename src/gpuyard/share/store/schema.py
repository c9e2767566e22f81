"""The tables of a share, and how a store of an earlier version becomes one of this version."""

from gpuyard.share.store.lease import WHOLE

APPLICATION = 0x67707973  # "gpys"
VERSION = 3

_RESERVATIONS = (
    """CREATE TABLE reservations (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    id TEXT NOT NULL UNIQUE,
    kind TEXT NOT NULL,
    uid INTEGER NOT NULL,
    user TEXT NOT NULL,
    count INTEGER NOT NULL CHECK (count > 0),
    wanted TEXT NOT NULL,
    gpus TEXT NOT NULL,
    start REAL NOT NULL,
    "end" REAL
) STRICT""",
    'CREATE INDEX reservations_by_end ON reservations ("end")',
)

TABLES = (
    """CREATE TABLE leases (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    id TEXT NOT NULL UNIQUE,
    uid INTEGER NOT NULL,
    user TEXT NOT NULL,
    "group" TEXT NOT NULL,
    pid INTEGER NOT NULL,
    process_start INTEGER NOT NULL,
    boot_id TEXT NOT NULL,
    command TEXT NOT NULL,
    project TEXT NOT NULL,
    count INTEGER NOT NULL,
    wanted TEXT NOT NULL,
    parts INTEGER NOT NULL,
    seconds REAL,
    asked REAL NOT NULL,
    gpus TEXT NOT NULL DEFAULT '[]',
    start REAL,
    start_boot REAL,
    until_boot REAL,
    "end" REAL,
    ended TEXT,
    priority INTEGER NOT NULL DEFAULT 0,
    idle_since_boot REAL,
    utilisation_sum REAL NOT NULL DEFAULT 0,
    utilisation_samples INTEGER NOT NULL DEFAULT 0,
    ending TEXT
) STRICT""",
    "CREATE INDEX living_leases ON leases (number) WHERE ended IS NULL",
    # what is held now, and nothing else: a lease's rows go when it ends
    f"""CREATE TABLE holds (
    lease INTEGER NOT NULL REFERENCES leases (number),
    gpu INTEGER NOT NULL CHECK (gpu >= 0),
    parts INTEGER NOT NULL CHECK (parts > 0 AND parts <= {WHOLE}),
    PRIMARY KEY (lease, gpu)
) STRICT""",
    f"CREATE UNIQUE INDEX one_holder ON holds (gpu) WHERE parts = {WHOLE}",
    *(
        f"""CREATE TRIGGER never_more_than_whole_at_{event} AFTER {event} ON holds
WHEN (SELECT SUM(parts) FROM holds WHERE gpu = NEW.gpu) > {WHOLE}
BEGIN SELECT RAISE(ABORT, 'this GPU is held already'); END"""  # noqa: S608 - of this file's own words
        for event in ("INSERT", "UPDATE")
    ),
    *_RESERVATIONS,
)

MIGRATIONS: dict[int, tuple[str, ...]] = {
    # version 1 did not sample how busy leased GPUs are, nor say who ended a lease
    1: (
        "ALTER TABLE leases ADD COLUMN priority INTEGER NOT NULL DEFAULT 0",
        "ALTER TABLE leases ADD COLUMN idle_since_boot REAL",
        "ALTER TABLE leases ADD COLUMN utilisation_sum REAL NOT NULL DEFAULT 0",
        "ALTER TABLE leases ADD COLUMN utilisation_samples INTEGER NOT NULL DEFAULT 0",
        "ALTER TABLE leases ADD COLUMN ending TEXT",
    ),
    2: _RESERVATIONS,
}
"""From each version to the next. Columns are added at the end, so that readers name them in one order."""
