-- Keys of agents: their hashes, with what their holders may do.

CREATE TABLE agent_key (
    agent TEXT PRIMARY KEY,
    key   TEXT    NOT NULL,
    seq   INTEGER NOT NULL
) STRICT;

PRAGMA user_version = 2;
