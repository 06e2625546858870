-- State as a projection of one audit log. Everything here can be rebuilt from the log.

-- The last record that is applied, written in the same transaction as what it changed.
CREATE TABLE position (
    id  INTEGER PRIMARY KEY CHECK (id = 1),
    log TEXT    NOT NULL,
    seq INTEGER NOT NULL
) STRICT;

CREATE TABLE server (
    identity TEXT PRIMARY KEY,
    epoch    TEXT    NOT NULL,
    state    TEXT    NOT NULL,
    halt     TEXT,
    fault    TEXT,
    record   TEXT    NOT NULL,
    seq      INTEGER NOT NULL
) STRICT;

CREATE TABLE declaration (
    server   TEXT    NOT NULL,
    version  TEXT    NOT NULL,
    epoch    TEXT    NOT NULL,
    state    TEXT    NOT NULL,
    document BLOB    NOT NULL,
    probe    BLOB    NOT NULL,
    seq      INTEGER NOT NULL,
    PRIMARY KEY (server, version)
) STRICT;

CREATE TABLE approval (
    approval_id TEXT PRIMARY KEY,
    state       TEXT    NOT NULL,
    approval    TEXT    NOT NULL,
    presented   BLOB    NOT NULL,
    seq         INTEGER NOT NULL
) STRICT;

CREATE INDEX approval_by_state ON approval (state, seq);

CREATE TABLE policy (
    id       INTEGER PRIMARY KEY CHECK (id = 1),
    version  TEXT    NOT NULL,
    document BLOB    NOT NULL,
    seq      INTEGER NOT NULL
) STRICT;

PRAGMA user_version = 1;
