-- Appending and ringing. Every function finds the tables of its own schema, whatever the caller's search path. Those that look
-- something up do it by an index, by a plan made once: one that was made when the tables were small is kept while they grow.

-- Checks a stream key, then takes the stream's lock, to the end of the transaction.
--
-- Waits as long as the session's lock_timeout says, or lock_timeout_ms.
CREATE FUNCTION lock_stream(stream_key text, lock_timeout_ms integer DEFAULT NULL) RETURNS void
LANGUAGE plpgsql VOLATILE SET search_path FROM CURRENT AS $$
DECLARE
    -- Streams of the same name in two schemas do not wait for each other.
    lock bigint := hashtextextended(lock_stream.stream_key COLLATE "C", hashtextextended(current_schema(), 0));
    before text;
BEGIN
    IF coalesce(lock_stream.stream_key, '') = '' THEN
        RAISE EXCEPTION 'a stream key has at least one character' USING ERRCODE = 'RB002';
    ELSIF octet_length(lock_stream.stream_key) > 512 THEN
        RAISE EXCEPTION 'the stream key has % bytes, at most 512 are possible', octet_length(lock_stream.stream_key)
            USING ERRCODE = 'RB002';
    ELSIF position(chr(30) IN lock_stream.stream_key) > 0 THEN
        RAISE EXCEPTION 'the stream key contains U+001E, which no key can' USING ERRCODE = 'RB002';
    END IF;
    -- The usual case is a free lock, and then no setting has to be changed.
    IF NOT pg_try_advisory_xact_lock(lock) THEN
        IF lock_timeout_ms IS NULL THEN
            PERFORM pg_advisory_xact_lock(lock);
        ELSE
            before := current_setting('lock_timeout');
            PERFORM set_config('lock_timeout', lock_timeout_ms::text, true);
            PERFORM pg_advisory_xact_lock(lock);
            PERFORM set_config('lock_timeout', before, true);
        END IF;
    END IF;
    -- A transaction that keeps one snapshot does not see what was committed while it waited. If that was an append, the primary
    -- key refuses the next one; if it was a trim, this does: a floor that the snapshot does not show is a serialization failure.
    IF current_setting('transaction_isolation') NOT IN ('read committed', 'read uncommitted') THEN
        INSERT INTO low_water_marks (stream_key, low_water) VALUES (lock_stream.stream_key, 0) ON CONFLICT DO NOTHING;
    END IF;
END
$$;

-- Appends an event to its stream, and returns its number, its identity and its time.
--
-- expected_seq, unless null or 0, has to be the next number of the stream; if not, SQLSTATE RB001 says so, with DETAIL as JSON.
-- With ring the transaction notifies channel as it commits. That makes all such commits of the cluster wait for each other's
-- flush, so on a busy server ring after the commit instead.
CREATE FUNCTION append_record(
    IN stream_key text,
    IN payload jsonb,
    IN expected_seq bigint DEFAULT NULL,
    IN notify boolean DEFAULT false,
    IN channel text DEFAULT 'doorbell',
    IN lock_timeout_ms integer DEFAULT NULL,
    OUT seq bigint,
    OUT event_id uuid,
    OUT appended_at timestamptz
)
LANGUAGE plpgsql VOLATILE SET search_path FROM CURRENT SET enable_seqscan = off SET plan_cache_mode = force_generic_plan AS $$
BEGIN
    PERFORM lock_stream(append_record.stream_key, append_record.lock_timeout_ms);
    -- A statement of its own, so its snapshot is taken under the lock.
    seq := 1 + coalesce(
        (SELECT e.seq FROM events e WHERE e.stream_key = append_record.stream_key ORDER BY e.seq DESC LIMIT 1),
        (SELECT f.low_water FROM low_water_marks f WHERE f.stream_key = append_record.stream_key),
        0
    );
    IF coalesce(append_record.expected_seq, 0) NOT IN (0, seq) THEN
        PERFORM refuse_seq(append_record.stream_key, seq, append_record.expected_seq);
    END IF;
    event_id := gen_random_uuid();
    appended_at := clock_timestamp();
    -- In a transaction that keeps one snapshot, a number taken since is a serialization failure.
    INSERT INTO events (stream_key, seq, event_id, appended_at, payload)
    VALUES (append_record.stream_key, append_record.seq, append_record.event_id, append_record.appended_at, append_record.payload)
    ON CONFLICT DO NOTHING;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'number % of the stream was written without its lock', seq USING ERRCODE = 'serialization_failure';
    END IF;
    IF append_record.notify THEN
        PERFORM pg_notify(append_record.channel, append_record.stream_key || ':' || seq);
    END IF;
END
$$;

-- The same, and returns the number only.
CREATE FUNCTION append(
    stream_key text,
    payload jsonb,
    expected_seq bigint DEFAULT NULL,
    notify boolean DEFAULT false,
    channel text DEFAULT 'doorbell',
    lock_timeout_ms integer DEFAULT NULL
) RETURNS bigint
LANGUAGE plpgsql VOLATILE SET search_path FROM CURRENT AS $$
BEGIN
    RETURN (
        SELECT r.seq FROM append_record(
            append.stream_key, append.payload, append.expected_seq, append.notify, append.channel, append.lock_timeout_ms) AS r);
END
$$;

-- Raises the error of an event that carries the wrong number.
CREATE FUNCTION refuse_seq(stream_key text, expected bigint, actual bigint) RETURNS void
LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
    RAISE EXCEPTION 'the event carries number %, the next is %', actual, expected
        USING ERRCODE = 'RB001',
            DETAIL = json_build_object('stream_key', stream_key, 'expected', expected, 'actual', actual)::text;
END
$$;

-- Appends several events in the order of the arrays, and returns their numbers and identities in that order, and their time.
-- Streams are locked in the order of their keys, byte by byte, so transactions of one such call each cannot deadlock.
CREATE FUNCTION append_records(
    IN stream_keys text[],
    IN payloads jsonb[],
    IN expected_seqs bigint[] DEFAULT NULL,
    IN notify boolean DEFAULT false,
    IN channel text DEFAULT 'doorbell',
    IN lock_timeout_ms integer DEFAULT NULL,
    OUT seqs bigint[],
    OUT event_ids uuid[],
    OUT appended_at timestamptz
)
LANGUAGE plpgsql VOLATILE SET search_path FROM CURRENT SET enable_seqscan = off SET plan_cache_mode = force_generic_plan AS $$
DECLARE
    streams text[] := ARRAY(
        SELECT DISTINCT k COLLATE "C" AS k FROM unnest(append_records.stream_keys) AS k ORDER BY k);
    stream text;
    nexts bigint[];
    written bigint;
    wrong record;
    range record;
BEGIN
    IF cardinality(append_records.payloads) IS DISTINCT FROM cardinality(append_records.stream_keys)
        OR cardinality(append_records.expected_seqs) <> cardinality(append_records.stream_keys) THEN
        RAISE EXCEPTION 'the arrays are not of one length' USING ERRCODE = 'array_subscript_error';
    END IF;
    FOREACH stream IN ARRAY streams LOOP
        PERFORM lock_stream(stream, append_records.lock_timeout_ms);
    END LOOP;
    nexts := ARRAY(
        SELECT 1 + coalesce(
            (SELECT e.seq FROM events e WHERE e.stream_key = k ORDER BY e.seq DESC LIMIT 1),
            (SELECT f.low_water FROM low_water_marks f WHERE f.stream_key = k),
            0)
        FROM unnest(streams) WITH ORDINALITY AS s (k, i) ORDER BY i);
    -- An event's number: its stream's next, and one more for each event of the stream before it in the batch.
    seqs := ARRAY(
        SELECT n + row_number() OVER (PARTITION BY g.k ORDER BY g.i) - 1
        FROM unnest(append_records.stream_keys) WITH ORDINALITY AS g (k, i)
        JOIN unnest(streams, nexts) AS s (k, n) ON s.k = g.k COLLATE "C"
        ORDER BY g.i);
    IF append_records.expected_seqs IS NOT NULL THEN
        SELECT g.k, g.seq, g.expected INTO wrong
        FROM unnest(append_records.stream_keys, seqs, append_records.expected_seqs) WITH ORDINALITY AS g (k, seq, expected, i)
        WHERE coalesce(g.expected, 0) NOT IN (0, g.seq)
        ORDER BY g.i LIMIT 1;
        IF FOUND THEN
            PERFORM refuse_seq(wrong.k, wrong.seq, wrong.expected);
        END IF;
    END IF;
    event_ids := ARRAY(SELECT gen_random_uuid() FROM unnest(seqs));
    appended_at := clock_timestamp();
    INSERT INTO events (stream_key, seq, event_id, appended_at, payload)
    SELECT g.k, g.seq, g.id, append_records.appended_at, g.payload
    FROM unnest(append_records.stream_keys, seqs, event_ids, append_records.payloads) AS g (k, seq, id, payload)
    ON CONFLICT DO NOTHING;
    GET DIAGNOSTICS written = ROW_COUNT;
    IF written <> cardinality(seqs) THEN
        RAISE EXCEPTION 'numbers of the streams were written without their locks' USING ERRCODE = 'serialization_failure';
    END IF;
    IF append_records.notify THEN
        FOR range IN
            SELECT g.k, min(g.seq) AS first, max(g.seq) AS last
            FROM unnest(append_records.stream_keys, seqs) AS g (k, seq) GROUP BY g.k
        LOOP
            PERFORM notify_events(range.k, range.first, range.last, append_records.channel);
        END LOOP;
    END IF;
END
$$;

-- The same, and returns the numbers only.
CREATE FUNCTION append_many(
    stream_keys text[],
    payloads jsonb[],
    expected_seqs bigint[] DEFAULT NULL,
    notify boolean DEFAULT false,
    channel text DEFAULT 'doorbell',
    lock_timeout_ms integer DEFAULT NULL
) RETURNS bigint[]
LANGUAGE plpgsql VOLATILE SET search_path FROM CURRENT AS $$
BEGIN
    RETURN (
        SELECT r.seqs FROM append_records(
            append_many.stream_keys, append_many.payloads, append_many.expected_seqs,
            append_many.notify, append_many.channel, append_many.lock_timeout_ms) AS r);
END
$$;

-- Rings for one event of a stream.
CREATE FUNCTION notify_events(stream_key text, seq bigint, channel text DEFAULT 'doorbell') RETURNS void
LANGUAGE sql VOLATILE
RETURN pg_notify(channel, stream_key || ':' || seq);

-- Rings for a range of events of a stream.
CREATE FUNCTION notify_events(stream_key text, first bigint, last bigint, channel text DEFAULT 'doorbell') RETURNS void
LANGUAGE sql VOLATILE
RETURN pg_notify(channel, stream_key || ':' || first || CASE WHEN last > first THEN '-' || last ELSE '' END);
