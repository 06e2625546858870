-- What stops sessions, and what servers have become that waits to be accepted. Both come from events that were not looked
-- at before, so everything is applied again.

CREATE TABLE checkpoint (
    session    TEXT PRIMARY KEY,
    checkpoint TEXT    NOT NULL,
    seq        INTEGER NOT NULL
) STRICT;

CREATE TABLE surface (
    server TEXT PRIMARY KEY,
    probe  BLOB    NOT NULL,
    seq    INTEGER NOT NULL
) STRICT;

DELETE FROM position;
DELETE FROM server;
DELETE FROM declaration;
DELETE FROM approval;
DELETE FROM policy_activation;
DELETE FROM agent_key;
DELETE FROM operator;
DELETE FROM admin_state;

PRAGMA user_version = 6;
