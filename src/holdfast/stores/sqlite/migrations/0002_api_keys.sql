-- The record is the whole key. Of its text there is only the digest.
CREATE TABLE api_key (
    key_id     TEXT PRIMARY KEY,
    created_at INTEGER NOT NULL,
    record     TEXT NOT NULL
) STRICT, WITHOUT ROWID;
