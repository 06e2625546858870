-- Every policy that was ever activated, so that an operator can go back to one.

CREATE TABLE policy_activation (
    seq        INTEGER PRIMARY KEY,
    version    TEXT NOT NULL,
    document   BLOB NOT NULL,
    activation TEXT NOT NULL
) STRICT;

INSERT INTO policy_activation (seq, version, document, activation) SELECT seq, version, document, '{}' FROM policy;
DROP TABLE policy;

PRAGMA user_version = 3;
