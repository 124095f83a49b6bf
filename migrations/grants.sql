-- Grants the rights that the event store needs; docs/security.md explains them. A script for psql. Every role is optional, one
-- role may have several rights, and the script can be run again.
--
-- Before the first migration, as a superuser or as the owner of the schema or database:
--
--     psql -v schema=doorbell -v owner=doorbell_owner -f migrations/grants.sql "$DATABASE_URL"
--
-- After the first migration, as its owner or as a superuser:
--
--     psql -v schema=doorbell -v writer=app -v reader=app -v trimmer=janitor -f migrations/grants.sql "$DATABASE_URL"
--
-- To take rights away: REVOKE ALL ON ALL TABLES IN SCHEMA doorbell FROM app; REVOKE ALL ON SCHEMA doorbell FROM app;

\set ON_ERROR_STOP on
\if :{?schema}
\else
    \set schema doorbell
\endif

BEGIN;
SET LOCAL search_path = pg_catalog, pg_temp;

-- Creates and upgrades the tables and functions, owns them and the schema, and can grant the other rights. No other role should be able
-- to create functions in the schema: they would run as the roles that use it. Whoever runs this must be a member of the owner.
\if :{?owner}
    CREATE SCHEMA IF NOT EXISTS :"schema" AUTHORIZATION :"owner";
    -- The database's owner is the only member of pg_database_owner.
    SELECT pg_has_role(CASE WHEN pg_get_userbyid(n.nspowner) = 'pg_database_owner' THEN d.datdba ELSE n.nspowner END, :'owner', 'MEMBER')
        AS schema_is_owners
    FROM pg_namespace n, pg_database d WHERE n.nspname = :'schema' AND d.datname = current_database() \gset
    \if :schema_is_owners
    \else
        \warn The schema exists and belongs to another role, which could put its code into it. Drop it, or use another one.
        DO $$ BEGIN RAISE EXCEPTION 'the schema belongs to another role; nothing was changed'; END $$;
    \endif
    REVOKE CREATE ON SCHEMA :"schema" FROM PUBLIC;
    GRANT USAGE, CREATE ON SCHEMA :"schema" TO :"owner" WITH GRANT OPTION;
\endif

-- Appends and notifies. Cannot read payloads, change events, or choose the transaction ID by which readers find changes.
\if :{?writer}
    GRANT USAGE ON SCHEMA :"schema" TO :"writer";
    GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA :"schema" TO :"writer";
    GRANT SELECT (stream_key, seq), INSERT (stream_key, seq, event_id, appended_at, payload) ON :"schema".events TO :"writer";
    GRANT SELECT, INSERT (stream_key, low_water) ON :"schema".low_water_marks TO :"writer";
    GRANT SELECT ON :"schema".history_identity, :"schema".migrations TO :"writer";
\endif

-- Reads every stream, and finds out what has changed.
\if :{?reader}
    GRANT USAGE ON SCHEMA :"schema" TO :"reader";
    GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA :"schema" TO :"reader";
    GRANT SELECT ON :"schema".events, :"schema".low_water_marks, :"schema".history_identity, :"schema".migrations TO :"reader";
\endif

-- Removes old events. Cannot read payloads or append.
\if :{?trimmer}
    GRANT USAGE ON SCHEMA :"schema" TO :"trimmer";
    GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA :"schema" TO :"trimmer";
    GRANT SELECT (stream_key, seq, xid, appended_at), DELETE ON :"schema".events TO :"trimmer";
    GRANT SELECT, INSERT, UPDATE (low_water, low_water_xid) ON :"schema".low_water_marks TO :"trimmer";
    GRANT SELECT ON :"schema".history_identity, :"schema".migrations TO :"trimmer";
\endif

COMMIT;
