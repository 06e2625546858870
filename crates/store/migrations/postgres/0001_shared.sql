-- What several replicas know together (AUD-68). Every row says which record of which log made it so.
CREATE SCHEMA IF NOT EXISTS portcullis;

-- What all replicas have to have in common: the key of request fingerprints.
CREATE TABLE IF NOT EXISTS portcullis.setting (
    name  text  PRIMARY KEY,
    value bytea NOT NULL
);

-- Who takes part, and up to which of its records everything is published.
CREATE TABLE IF NOT EXISTS portcullis.replica (
    log     text   PRIMARY KEY,
    settled bigint NOT NULL DEFAULT -1
);

-- A server or an approval: the record that made it what it is, and which replica is changing it.
CREATE TABLE IF NOT EXISTS portcullis.object (
    object text PRIMARY KEY,
    log    text,
    seq    bigint,
    busy   text
);

-- Every change in the order of commits. The one row of `counter` is locked by whoever commits, so there are no gaps.
CREATE TABLE IF NOT EXISTS portcullis.counter (
    id       integer PRIMARY KEY CHECK (id = 1),
    position bigint  NOT NULL
);
INSERT INTO portcullis.counter (id, position) VALUES (1, 0) ON CONFLICT DO NOTHING;

CREATE TABLE IF NOT EXISTS portcullis.change (
    position  bigint PRIMARY KEY,
    log       text   NOT NULL,
    seq       bigint NOT NULL,
    object    text   NOT NULL,
    event     text   NOT NULL,
    record    text   NOT NULL,
    documents text   NOT NULL,
    UNIQUE (log, seq)
);

-- How often an approval may still be used, over all replicas, and the uses that were taken. `seq` is that of the intent;
-- a use without one is under way, or its replica died.
CREATE TABLE IF NOT EXISTS portcullis.approval (
    approval  text   PRIMARY KEY,
    uses_left bigint NOT NULL
);
CREATE TABLE IF NOT EXISTS portcullis.approval_use (
    proposal text PRIMARY KEY,
    approval text NOT NULL,
    log      text NOT NULL,
    seq      bigint
);
