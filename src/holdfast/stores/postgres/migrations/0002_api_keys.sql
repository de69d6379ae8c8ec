-- Code that knows migration 1 can work with what this one leaves.

-- The record is the whole key. Of its text there is only the digest.
CREATE TABLE holdfast.api_key (
    key_id     text PRIMARY KEY,
    created_at timestamptz NOT NULL,
    record     json NOT NULL
);
