-- What operators set besides: tokens, roles and the like, one document each.

CREATE TABLE admin_state (
    kind     TEXT    NOT NULL,
    id       TEXT    NOT NULL,
    version  INTEGER NOT NULL,
    document TEXT    NOT NULL,
    seq      INTEGER NOT NULL,
    PRIMARY KEY (kind, id)
) STRICT;

PRAGMA user_version = 5;
