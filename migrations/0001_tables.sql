-- The tables. Names are unqualified: they go to the first schema of the search path.

-- Every event of every stream. Within a stream the numbers run 1, 2, 3, without a gap, in the order of commit.
CREATE TABLE events (
    stream_key  text COLLATE "C" NOT NULL,
    seq         bigint      NOT NULL CHECK (seq > 0),
    -- Never given twice, so that a history that was rewritten to the same length can be told from the one before.
    event_id    uuid        NOT NULL DEFAULT gen_random_uuid(),
    -- The transaction that appended the event, for "what has become visible since that snapshot?".
    xid         xid8        NOT NULL DEFAULT pg_current_xact_id(),
    -- Taken under the stream's lock, so it follows the numbers as far as the server's clock does.
    appended_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    payload     jsonb       NOT NULL,
    PRIMARY KEY (stream_key, seq)
);

CREATE INDEX events_by_xid ON events (xid);

-- What retention has removed: one row for each stream that was ever trimmed. It outlives the events, so numbers go on after all
-- of them are gone, and a reader that comes too late learns of it.
CREATE TABLE low_water_marks (
    stream_key      text COLLATE "C" PRIMARY KEY,
    low_water bigint NOT NULL CHECK (low_water >= 0),
    -- The transaction that had appended the last event removed; null if none was.
    low_water_xid     xid8
);

CREATE INDEX low_water_marks_by_xid ON low_water_marks (low_water_xid);

-- Where the transaction numbers in the tables above come from: one row. Elsewhere (a restored dump) they mean nothing until
-- rebind_after_restore() has been called.
CREATE TABLE history_identity (
    id                uuid   NOT NULL DEFAULT gen_random_uuid(),
    system_identifier bigint NOT NULL,
    database          oid    NOT NULL
);
