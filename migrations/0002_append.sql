-- Appending and notifying. Functions that use tables turn row_security off: row-level security that applies to the
-- caller is then an error, instead of hiding rows. Functions that look up rows disable sequential scans and force a generic plan: a
-- plan that is cached while the tables are small is still used after they have grown. They also turn JIT off: a plan step that a setting disables, here or of the
-- caller's role, costs so much that every call would be compiled.
--
-- append_record(), append_records() and trim_stream() are SECURITY DEFINER: they run with the rights of the owner, and are the only
-- way for other roles to change the tables. Only roles that have been granted EXECUTE may call them. All other functions run with
-- the rights of the caller, and need no grant.
--
-- Clients call the functions with the schema written out, and nothing else: no operators, casts or functions of their own, which
-- the server would look up along the caller's search path, where other roles may have put their own. So functions with more than
-- one result return it in the types that a driver decodes: IDs as 16 bytes, times as seconds since 1970.

-- The channel of the notifications about this schema's streams: "doorbell" for the schema of that name; for others "doorbell_" and
-- the schema's name, or "doorbell-" and a hash of it, if the former does not fit into 63 bytes. The Rust crate derives the same.
CREATE FUNCTION @schema@.notification_channel() RETURNS text
LANGUAGE plpgsql STABLE SET search_path FROM CURRENT AS $$
DECLARE
    schema_name bytea := convert_to(@schema_name@, 'UTF8');
BEGIN
    RETURN CASE
        WHEN @schema_name@ = 'doorbell' THEN 'doorbell'
        WHEN octet_length(schema_name) <= 63 - 9 THEN 'doorbell_' || @schema_name@
        ELSE 'doorbell-' || md5(schema_name)
    END;
END
$$;

-- Raises an error if a text cannot be converted to UTF-8, which is what clients read. Only for databases with another encoding: SQL_ASCII
-- stores any bytes, and encodings such as WIN1252 have bytes that stand for no character.
CREATE FUNCTION @schema@.require_utf8(value text) RETURNS void
LANGUAGE plpgsql IMMUTABLE SET search_path FROM CURRENT AS $$
BEGIN
    PERFORM convert_to(require_utf8.value, 'UTF8');
END
$$;

-- Returns the text of an event's payload, or null if it has more than 64 MiB (67108864 bytes). Numbers make the text far larger than what
-- is stored: 1e131071 is stored in 16 bytes, and has 131072 digits. So a payload of up to 4096 bytes, uncompressed, has at most 38 MB of
-- text; callers need not ask for it.
CREATE FUNCTION @schema@.payload_text(payload jsonb) RETURNS text
LANGUAGE plpgsql STABLE SET search_path FROM CURRENT AS $$
DECLARE
    payload_text text;
BEGIN
    BEGIN
        payload_text := payload_text.payload::text;
    EXCEPTION WHEN program_limit_exceeded THEN -- no text has more than 1 GB
        RETURN NULL;
    END;
    RETURN CASE WHEN octet_length(payload_text) <= 67108864 THEN payload_text END;
END
$$;

-- Raises RB006 if the text of an event's payload is too large, so that it could not be read.
CREATE FUNCTION @schema@.require_size(stream_key text, payload jsonb) RETURNS void
LANGUAGE plpgsql STABLE SET search_path FROM CURRENT AS $$
BEGIN
    IF require_size.payload IS NOT NULL AND @schema@.payload_text(require_size.payload) IS NULL THEN
        RAISE EXCEPTION 'the event has more than 64 MiB as text' USING ERRCODE = 'RB006', DETAIL = require_size.stream_key;
    END IF;
END
$$;

-- Validates a stream key, unless any_key is set, then locks the stream until the end of the transaction. Waits for the lock for
-- lock_timeout.
CREATE FUNCTION @schema@.lock_stream(stream_key text, any_key boolean DEFAULT false) RETURNS void
LANGUAGE plpgsql VOLATILE SET search_path FROM CURRENT SET row_security = off AS $$
DECLARE
    -- Seeded with the schema, so that streams with the same key in two schemas do not block each other.
    lock_id bigint := hashtextextended(lock_stream.stream_key COLLATE "C", hashtextextended(@schema_name@, 0));
BEGIN
    IF lock_stream.any_key THEN
        NULL;
    ELSIF coalesce(lock_stream.stream_key, '') = '' THEN
        RAISE EXCEPTION 'the stream key is empty' USING ERRCODE = 'RB002';
    ELSIF octet_length(lock_stream.stream_key) > 512 THEN
        RAISE EXCEPTION 'the stream key is % bytes long; the maximum is 512', octet_length(lock_stream.stream_key)
            USING ERRCODE = 'RB002';
    ELSIF position(chr(30) IN lock_stream.stream_key) > 0 THEN
        RAISE EXCEPTION 'the stream key contains U+001E, which is not allowed' USING ERRCODE = 'RB002';
    ELSIF getdatabaseencoding() <> 'UTF8' THEN
        PERFORM @schema@.require_utf8(lock_stream.stream_key);
    END IF;
    PERFORM pg_advisory_xact_lock(lock_id);
    -- A transaction that keeps one snapshot does not see what was committed while it waited. The primary key of events detects a
    -- concurrent append. This insert detects a concurrent trim: conflicting with a row that the snapshot does not show is a
    -- serialization failure.
    IF current_setting('transaction_isolation') NOT IN ('read committed', 'read uncommitted') THEN
        INSERT INTO @schema@.low_water_marks (stream_key, low_water) VALUES (lock_stream.stream_key, 0) ON CONFLICT DO NOTHING;
    END IF;
END
$$;

-- Locks a stream until the end of the transaction, unless another transaction has locked it. Returns whether it is locked.
CREATE FUNCTION @schema@.try_lock_stream(stream_key text) RETURNS boolean
LANGUAGE plpgsql VOLATILE SET search_path FROM CURRENT AS $$
BEGIN
    -- The lock ID is that of lock_stream().
    RETURN pg_try_advisory_xact_lock(
        hashtextextended(try_lock_stream.stream_key COLLATE "C", hashtextextended(@schema_name@, 0)));
END
$$;

-- Raises RB005: the stream's last number is 2^62 - 1 or higher. That takes a row that was inserted by hand.
CREATE FUNCTION @schema@.raise_stream_full(stream_key text) RETURNS void
LANGUAGE plpgsql IMMUTABLE SET search_path FROM CURRENT AS $$
BEGIN
    RAISE EXCEPTION 'the stream has used the highest sequence number' USING ERRCODE = 'RB005', DETAIL = raise_stream_full.stream_key;
END
$$;

-- Raises RB001: an event carries a number that is not the next of its stream.
CREATE FUNCTION @schema@.raise_seq_conflict(stream_key text, expected bigint, actual bigint) RETURNS void
LANGUAGE plpgsql IMMUTABLE SET search_path FROM CURRENT AS $$
BEGIN
    RAISE EXCEPTION 'the event has sequence number %, but the next is %', actual, expected
        USING ERRCODE = 'RB001',
            DETAIL = json_build_object('stream_key', stream_key, 'expected', expected, 'actual', actual)::text;
END
$$;

-- Appends an event and returns its sequence number, ID and time, and the ID of the stream's event before it.
--
-- expected_seq must be the next number of the stream, unless it is null or 0; otherwise the call fails with SQLSTATE RB001.
-- With notify, the transaction sends a notification when it commits, on channel or, if that is null, on notification_channel(). All
-- such commits of the cluster are serialized, each waiting for the previous one's flush; on a busy server, call notify_events()
-- after the commit instead.
--
-- Waits for each lock, of the stream and of the tables, for lock_timeout_ms, or for the session's lock_timeout if that is null. So a
-- process of the server does not wait on after its client has given up.
CREATE FUNCTION @schema@.append_record(
    IN stream_key text,
    IN payload jsonb,
    IN expected_seq bigint DEFAULT NULL,
    IN notify boolean DEFAULT false,
    IN channel text DEFAULT NULL,
    IN lock_timeout_ms integer DEFAULT NULL,
    OUT seq bigint,
    OUT event_id bytea,
    OUT previous_id bytea,
    OUT appended_at double precision
)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path FROM CURRENT
SET row_security = off SET enable_seqscan = off SET enable_indexscan = on SET plan_cache_mode = force_generic_plan SET jit = off AS $$
DECLARE
    last_seq bigint;
    last_id uuid;
    new_id uuid := gen_random_uuid();
    new_time timestamptz;
    previous_timeout text;
BEGIN
    IF append_record.lock_timeout_ms IS NOT NULL THEN
        previous_timeout := current_setting('lock_timeout');
        PERFORM set_config('lock_timeout', append_record.lock_timeout_ms::text, true);
    END IF;
    IF pg_column_size(append_record.payload) > 4096 OR pg_column_compression(append_record.payload) IS NOT NULL THEN
        PERFORM @schema@.require_size(append_record.stream_key, append_record.payload);
    END IF;
    PERFORM @schema@.lock_stream(append_record.stream_key);
    -- A separate statement, so that its snapshot is taken after the stream was locked.
    SELECT e.seq, e.event_id INTO last_seq, last_id
    FROM @schema@.events e WHERE e.stream_key = append_record.stream_key ORDER BY e.seq DESC LIMIT 1;
    IF NOT FOUND THEN
        SELECT m.low_water, m.low_water_id INTO last_seq, last_id
        FROM @schema@.low_water_marks m WHERE m.stream_key = append_record.stream_key;
        last_seq := coalesce(last_seq, 0);
    END IF;
    IF last_seq >= 4611686018427387903 THEN
        PERFORM @schema@.raise_stream_full(append_record.stream_key);
    END IF;
    seq := last_seq + 1;
    IF coalesce(append_record.expected_seq, 0) NOT IN (0, seq) THEN
        PERFORM @schema@.raise_seq_conflict(append_record.stream_key, seq, append_record.expected_seq);
    END IF;
    IF getdatabaseencoding() <> 'UTF8' THEN
        PERFORM @schema@.require_utf8(append_record.payload::text);
    END IF;
    new_time := clock_timestamp();
    -- In a transaction that keeps one snapshot, a number that was assigned since then is a serialization failure.
    INSERT INTO @schema@.events (stream_key, seq, event_id, previous_id, appended_at, payload)
    VALUES (append_record.stream_key, append_record.seq, new_id, last_id, new_time, append_record.payload)
    ON CONFLICT DO NOTHING;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'event % of the stream was inserted without locking the stream', seq
            USING ERRCODE = 'serialization_failure';
    END IF;
    event_id := uuid_send(new_id);
    previous_id := uuid_send(last_id);
    appended_at := date_part('epoch', new_time);
    IF append_record.notify THEN
        PERFORM pg_notify(coalesce(append_record.channel, @schema@.notification_channel()), append_record.stream_key || ':' || seq);
    END IF;
    IF append_record.lock_timeout_ms IS NOT NULL THEN
        PERFORM set_config('lock_timeout', previous_timeout, true);
    END IF;
END
$$;
REVOKE EXECUTE ON FUNCTION @schema@.append_record FROM PUBLIC;

-- Like append_record, but returns only the sequence number.
CREATE FUNCTION @schema@.append(
    stream_key text,
    payload jsonb,
    expected_seq bigint DEFAULT NULL,
    notify boolean DEFAULT false,
    channel text DEFAULT NULL,
    lock_timeout_ms integer DEFAULT NULL
) RETURNS bigint
LANGUAGE plpgsql VOLATILE SET search_path FROM CURRENT AS $$
BEGIN
    RETURN (
        SELECT r.seq FROM @schema@.append_record(
            append.stream_key, append.payload, append.expected_seq, append.notify, append.channel, append.lock_timeout_ms) AS r);
END
$$;

-- Appends several events in array order, all or none, and returns their sequence numbers and IDs, and the IDs of the events before
-- them, in that order, and their time.
-- Streams are locked in byte order of their keys, so transactions that consist of one such call cannot deadlock each other.
CREATE FUNCTION @schema@.append_records(
    IN stream_keys text[],
    IN payloads jsonb[],
    IN expected_seqs bigint[] DEFAULT NULL,
    IN notify boolean DEFAULT false,
    IN channel text DEFAULT NULL,
    IN lock_timeout_ms integer DEFAULT NULL,
    OUT seqs bigint[],
    OUT event_ids bytea[],
    OUT previous_ids bytea[],
    OUT appended_at double precision
)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path FROM CURRENT
SET row_security = off SET enable_seqscan = off SET enable_indexscan = on SET plan_cache_mode = force_generic_plan SET jit = off AS $$
DECLARE
    distinct_keys text[] := ARRAY(
        SELECT DISTINCT k COLLATE "C" AS k FROM unnest(append_records.stream_keys) AS k ORDER BY k);
    distinct_key text;
    -- The last sequence number of each of distinct_keys.
    last_seqs bigint[];
    -- The ID of each of these events.
    last_ids uuid[];
    new_ids uuid[];
    new_previous_ids uuid[];
    new_time timestamptz;
    inserted bigint;
    conflict record;
    appended record;
    previous_timeout text;
BEGIN
    IF append_records.lock_timeout_ms IS NOT NULL THEN
        previous_timeout := current_setting('lock_timeout');
        PERFORM set_config('lock_timeout', append_records.lock_timeout_ms::text, true);
    END IF;
    IF cardinality(append_records.payloads) IS DISTINCT FROM cardinality(append_records.stream_keys)
        OR cardinality(append_records.expected_seqs) <> cardinality(append_records.stream_keys) THEN
        RAISE EXCEPTION 'the arrays differ in length' USING ERRCODE = 'array_subscript_error';
    END IF;
    IF pg_column_size(append_records.payloads) > 4096 OR pg_column_compression(append_records.payloads) IS NOT NULL THEN
        PERFORM @schema@.require_size(b.k, b.payload)
        FROM unnest(append_records.stream_keys, append_records.payloads) AS b (k, payload)
        WHERE pg_column_size(b.payload) > 4096 OR pg_column_compression(b.payload) IS NOT NULL;
    END IF;
    FOREACH distinct_key IN ARRAY distinct_keys LOOP
        PERFORM @schema@.lock_stream(distinct_key);
    END LOOP;
    SELECT array_agg(coalesce(e.seq, m.low_water, 0) ORDER BY s.i),
        array_agg(CASE WHEN e.seq IS NULL THEN m.low_water_id ELSE e.event_id END ORDER BY s.i)
    INTO last_seqs, last_ids
    FROM unnest(distinct_keys) WITH ORDINALITY AS s (k, i)
    LEFT JOIN LATERAL (
        SELECT events.seq, events.event_id FROM @schema@.events
        WHERE events.stream_key = s.k ORDER BY events.seq DESC LIMIT 1) AS e ON true
    LEFT JOIN LATERAL (
        SELECT low_water_marks.low_water, low_water_marks.low_water_id FROM @schema@.low_water_marks
        WHERE low_water_marks.stream_key = s.k AND e.seq IS NULL LIMIT 1) AS m ON true;
    IF 4611686018427387903 - cardinality(append_records.stream_keys) < ANY (last_seqs) THEN
        PERFORM @schema@.raise_stream_full(s.k) FROM unnest(distinct_keys, last_seqs) AS s (k, last_seq)
        WHERE s.last_seq > 4611686018427387903 - cardinality(append_records.stream_keys);
    END IF;
    -- An event's number is the last of its stream, plus the number of events of that stream in the batch up to this one.
    seqs := ARRAY(
        SELECT s.last_seq + row_number() OVER (PARTITION BY b.k ORDER BY b.i)
        FROM unnest(append_records.stream_keys) WITH ORDINALITY AS b (k, i)
        JOIN unnest(distinct_keys, last_seqs) AS s (k, last_seq) ON s.k = b.k COLLATE "C"
        ORDER BY b.i);
    IF append_records.expected_seqs IS NOT NULL THEN
        SELECT b.k, b.seq, b.expected INTO conflict
        FROM unnest(append_records.stream_keys, seqs, append_records.expected_seqs) WITH ORDINALITY AS b (k, seq, expected, i)
        WHERE coalesce(b.expected, 0) NOT IN (0, b.seq)
        ORDER BY b.i LIMIT 1;
        IF FOUND THEN
            PERFORM @schema@.raise_seq_conflict(conflict.k, conflict.seq, conflict.expected);
        END IF;
    END IF;
    IF getdatabaseencoding() <> 'UTF8' THEN
        PERFORM @schema@.require_utf8(append_records.payloads::text);
    END IF;
    new_ids := ARRAY(SELECT gen_random_uuid() FROM unnest(seqs));
    new_previous_ids := ARRAY(
        SELECT coalesce(lag(b.id) OVER (PARTITION BY b.k ORDER BY b.i), s.last_id)
        FROM unnest(append_records.stream_keys, new_ids) WITH ORDINALITY AS b (k, id, i)
        JOIN unnest(distinct_keys, last_ids) AS s (k, last_id) ON s.k = b.k COLLATE "C"
        ORDER BY b.i);
    event_ids := ARRAY(SELECT uuid_send(n.id) FROM unnest(new_ids) WITH ORDINALITY AS n (id, i) ORDER BY n.i);
    previous_ids := ARRAY(SELECT uuid_send(n.id) FROM unnest(new_previous_ids) WITH ORDINALITY AS n (id, i) ORDER BY n.i);
    new_time := clock_timestamp();
    appended_at := date_part('epoch', new_time);
    INSERT INTO @schema@.events (stream_key, seq, event_id, previous_id, appended_at, payload)
    SELECT b.k, b.seq, b.id, b.previous_id, new_time, b.payload
    FROM unnest(append_records.stream_keys, seqs, new_ids, new_previous_ids, append_records.payloads)
        AS b (k, seq, id, previous_id, payload)
    ON CONFLICT DO NOTHING;
    GET DIAGNOSTICS inserted = ROW_COUNT;
    IF inserted <> cardinality(seqs) THEN
        RAISE EXCEPTION 'events of these streams were inserted without locking the streams'
            USING ERRCODE = 'serialization_failure';
    END IF;
    IF append_records.notify THEN
        FOR appended IN
            SELECT b.k, min(b.seq) AS first, max(b.seq) AS last
            FROM unnest(append_records.stream_keys, seqs) AS b (k, seq) GROUP BY b.k
        LOOP
            PERFORM @schema@.notify_events(appended.k, appended.first, appended.last, append_records.channel);
        END LOOP;
    END IF;
    IF append_records.lock_timeout_ms IS NOT NULL THEN
        PERFORM set_config('lock_timeout', previous_timeout, true);
    END IF;
END
$$;
REVOKE EXECUTE ON FUNCTION @schema@.append_records FROM PUBLIC;

-- Like append_records, but returns only the sequence numbers.
CREATE FUNCTION @schema@.append_many(
    stream_keys text[],
    payloads jsonb[],
    expected_seqs bigint[] DEFAULT NULL,
    notify boolean DEFAULT false,
    channel text DEFAULT NULL,
    lock_timeout_ms integer DEFAULT NULL
) RETURNS bigint[]
LANGUAGE plpgsql VOLATILE SET search_path FROM CURRENT AS $$
BEGIN
    RETURN (
        SELECT r.seqs FROM @schema@.append_records(
            append_many.stream_keys, append_many.payloads, append_many.expected_seqs,
            append_many.notify, append_many.channel, append_many.lock_timeout_ms) AS r);
END
$$;

-- Like append_records, but never waits for the lock of a stream: events of streams that another transaction has locked are skipped, and their
-- sequence numbers and IDs are null. The other events are appended, all or none. A process that appends to many streams groups
-- them in few transactions this way, without one locked stream delaying the others.
--
-- Limits the waits for other locks, those of the tables, with lock_timeout_ms: the lock_timeout of the rest of the transaction.
CREATE FUNCTION @schema@.try_append_records(
    IN stream_keys text[],
    IN payloads jsonb[],
    IN expected_seqs bigint[] DEFAULT NULL,
    IN lock_timeout_ms integer DEFAULT NULL,
    OUT seqs bigint[],
    OUT event_ids bytea[],
    OUT previous_ids bytea[],
    OUT appended_at double precision
)
LANGUAGE plpgsql VOLATILE SET search_path FROM CURRENT SET jit = off AS $$
DECLARE
    -- The lock IDs are those of lock_stream().
    schema_hash bigint := hashtextextended(@schema_name@, 0);
    locked_keys text[];
    -- Positions in the arguments of the events whose streams were locked by this call.
    positions integer[];
    appended record;
BEGIN
    IF try_append_records.lock_timeout_ms IS NOT NULL THEN
        PERFORM set_config('lock_timeout', try_append_records.lock_timeout_ms::text, true);
    END IF;
    IF cardinality(try_append_records.stream_keys) = 1 AND cardinality(try_append_records.payloads) = 1 THEN
        IF pg_try_advisory_xact_lock(hashtextextended(try_append_records.stream_keys[1] COLLATE "C", schema_hash)) THEN
            SELECT r.seq, r.event_id, r.previous_id, r.appended_at INTO appended
            FROM @schema@.append_record(
                try_append_records.stream_keys[1], try_append_records.payloads[1], try_append_records.expected_seqs[1]) AS r;
            seqs := ARRAY[appended.seq];
            event_ids := ARRAY[appended.event_id];
            previous_ids := ARRAY[appended.previous_id];
            appended_at := appended.appended_at;
        ELSE
            seqs := ARRAY[NULL::bigint];
            event_ids := ARRAY[NULL::bytea];
            previous_ids := ARRAY[NULL::bytea];
        END IF;
        RETURN;
    END IF;
    locked_keys := ARRAY(
        SELECT s.k FROM (SELECT DISTINCT b.k COLLATE "C" AS k FROM unnest(try_append_records.stream_keys) AS b (k)) AS s
        WHERE NOT pg_try_advisory_xact_lock(hashtextextended(s.k, schema_hash)));
    IF cardinality(locked_keys) = 0 THEN
        SELECT r.seqs, r.event_ids, r.previous_ids, r.appended_at INTO seqs, event_ids, previous_ids, appended_at
        FROM @schema@.append_records(
            try_append_records.stream_keys, try_append_records.payloads, try_append_records.expected_seqs) AS r;
        RETURN;
    END IF;
    positions := ARRAY(
        SELECT b.i FROM unnest(try_append_records.stream_keys) WITH ORDINALITY AS b (k, i)
        WHERE b.k COLLATE "C" <> ALL (locked_keys) ORDER BY b.i);
    SELECT r.seqs, r.event_ids, r.previous_ids, r.appended_at INTO appended
    FROM @schema@.append_records(
        ARRAY(SELECT try_append_records.stream_keys[p.i] FROM unnest(positions) WITH ORDINALITY AS p (i, o) ORDER BY p.o),
        ARRAY(SELECT try_append_records.payloads[p.i] FROM unnest(positions) WITH ORDINALITY AS p (i, o) ORDER BY p.o),
        ARRAY(SELECT try_append_records.expected_seqs[p.i] FROM unnest(positions) WITH ORDINALITY AS p (i, o) ORDER BY p.o)) AS r;
    appended_at := appended.appended_at;
    seqs := array_fill(NULL::bigint, ARRAY[cardinality(try_append_records.stream_keys)]);
    event_ids := array_fill(NULL::bytea, ARRAY[cardinality(try_append_records.stream_keys)]);
    previous_ids := event_ids;
    FOR n IN 1 .. cardinality(positions) LOOP
        seqs[positions[n]] := appended.seqs[n];
        event_ids[positions[n]] := appended.event_ids[n];
        previous_ids[positions[n]] := appended.previous_ids[n];
    END LOOP;
END
$$;

-- Sends a notification for one event of a stream.
CREATE FUNCTION @schema@.notify_events(stream_key text, seq bigint, channel text DEFAULT NULL) RETURNS void
LANGUAGE sql VOLATILE SET search_path FROM CURRENT
RETURN pg_notify(coalesce(channel, @schema@.notification_channel()), stream_key || ':' || seq);

-- Sends a notification for a range of events of a stream.
CREATE FUNCTION @schema@.notify_events(stream_key text, first bigint, last bigint, channel text DEFAULT NULL) RETURNS void
LANGUAGE sql VOLATILE SET search_path FROM CURRENT
RETURN pg_notify(coalesce(channel, @schema@.notification_channel()), stream_key || ':' || first || CASE WHEN last > first THEN '-' || last ELSE '' END);
