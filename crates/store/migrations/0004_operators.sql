-- Enrolled operators: their names, and the digests of what is kept of their passphrases.

CREATE TABLE operator (
    name     TEXT PRIMARY KEY,
    operator TEXT    NOT NULL,
    seq      INTEGER NOT NULL
) STRICT;

PRAGMA user_version = 4;
