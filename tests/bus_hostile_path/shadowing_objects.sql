-- Twins of everything in pg_catalog, in the schema "evil". Each use of one calls a function of "evil" once.
--
-- Polymorphic functions and operators get a twin for each type that the crate could use: the server prefers exact matches to them,
-- wherever they are on the search path.
SET search_path = pg_catalog;
CREATE SCHEMA evil;
GRANT USAGE ON SCHEMA evil TO PUBLIC;

-- The concrete types that stand for polymorphic ones.
CREATE FUNCTION evil.concrete_types() RETURNS SETOF oid LANGUAGE sql AS $$
    SELECT unnest(ARRAY['text', 'bigint', 'integer', 'uuid', 'jsonb', 'bytea', 'boolean', 'timestamptz', 'double precision', 'numeric',
        'interval', 'xid8', 'xid', 'oid', 'name', 'pg_snapshot', 'pg_lsn']::regtype[])::oid
$$;

-- The name of a type, with concrete types in place of polymorphic ones; null if it cannot be an argument of a twin.
CREATE FUNCTION evil.substituted(type oid, element oid) RETURNS text LANGUAGE sql AS $$
    SELECT CASE
        WHEN type::regtype::text IN ('anyelement', 'anynonarray', 'anycompatible', 'anycompatiblenonarray', '"any"')
            THEN format_type(element, NULL)
        WHEN type::regtype::text IN ('anyarray', 'anycompatiblearray') THEN format_type(element, NULL) || '[]'
        WHEN (SELECT t.typtype FROM pg_type t WHERE t.oid = type) = 'p' THEN NULL
        ELSE format_type(type, NULL)
    END
$$;

-- Creates a twin, unless it is like another one.
CREATE FUNCTION evil.create_function(name text, arguments text, result text) RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
    EXECUTE format('CREATE FUNCTION evil.%I(%s) RETURNS %s LANGUAGE plpgsql COST 1 AS ''BEGIN RETURN%s; END''', name, arguments, result,
        CASE WHEN result LIKE 'SETOF%' OR result = 'void' THEN '' ELSE ' NULL' END);
    RETURN true;
EXCEPTION
    WHEN duplicate_function THEN
        RETURN false;
END
$$;

DO $$
DECLARE
    f record;
    element oid;
    arguments text;
    result text;
BEGIN
    FOR f IN
        SELECT p.proname, p.proretset, p.prorettype, p.proargtypes::oid[] AS args, p.provariadic,
            (SELECT bool_or(t.typtype = 'p') FROM unnest(p.proargtypes::oid[]) a JOIN pg_type t ON t.oid = a) AS has_pseudo
        FROM pg_proc p WHERE p.pronamespace = 'pg_catalog'::regnamespace AND p.prokind <> 'p'
    LOOP
        FOR element IN SELECT e FROM evil.concrete_types() AS e LIMIT CASE WHEN f.has_pseudo THEN NULL ELSE 1 END LOOP
            SELECT string_agg(evil.substituted(a.type, element), ', ' ORDER BY a.n) INTO arguments
            FROM unnest(f.args) WITH ORDINALITY AS a (type, n)
            HAVING bool_and(evil.substituted(a.type, element) IS NOT NULL);
            CONTINUE WHEN arguments IS NULL AND cardinality(f.args) > 0;
            result := coalesce(
                evil.substituted(f.prorettype, element),
                CASE WHEN f.prorettype::regtype::text IN ('void', 'record') THEN f.prorettype::regtype::text ELSE 'text' END);
            PERFORM evil.create_function(f.proname, coalesce(arguments, ''), CASE WHEN f.proretset THEN 'SETOF ' ELSE '' END || result);
        END LOOP;
    END LOOP;
END
$$;

DO $$
DECLARE
    o record;
    element oid;
    left_type text;
    right_type text;
    twin text;
BEGIN
    FOR o IN
        SELECT p.oprname, p.oprleft, p.oprright, p.oprresult,
            EXISTS (SELECT FROM pg_type t WHERE t.oid IN (p.oprleft, p.oprright) AND t.typtype = 'p') AS has_pseudo
        FROM pg_operator p WHERE p.oprnamespace = 'pg_catalog'::regnamespace
    LOOP
        FOR element IN SELECT e FROM evil.concrete_types() AS e LIMIT CASE WHEN o.has_pseudo THEN NULL ELSE 1 END LOOP
            left_type := CASE WHEN o.oprleft <> 0 THEN evil.substituted(o.oprleft, element) END;
            right_type := evil.substituted(o.oprright, element);
            CONTINUE WHEN right_type IS NULL OR (left_type IS NULL AND o.oprleft <> 0);
            twin := 'operator ' || o.oprname;
            PERFORM evil.create_function(twin, concat_ws(', ', left_type, right_type),
                coalesce(evil.substituted(o.oprresult, element), 'boolean'));
            BEGIN
                EXECUTE format('CREATE OPERATOR evil.%s (FUNCTION = evil.%I, %s RIGHTARG = %s)', o.oprname, twin,
                    'LEFTARG = ' || left_type || ',', right_type);
            EXCEPTION
                WHEN duplicate_function THEN NULL;
            END;
        END LOOP;
    END LOOP;
END
$$;

-- As domains, which check each value.
DO $$
DECLARE
    t record;
BEGIN
    FOR t IN
        SELECT p.typname, p.oid FROM pg_type p
        WHERE p.typnamespace = 'pg_catalog'::regnamespace AND p.typtype IN ('b', 'r') AND p.typname NOT LIKE '\_%'
    LOOP
        PERFORM evil.create_function('type ' || t.typname, '', 'boolean');
        EXECUTE format('CREATE DOMAIN evil.%I AS %s CHECK (evil.%I())', t.typname, format_type(t.oid, NULL), 'type ' || t.typname);
    END LOOP;
END
$$;

-- As views, which call a function for each read.
DO $$
DECLARE
    r record;
BEGIN
    FOR r IN
        SELECT c.relname, string_agg(quote_ident(a.attname), ', ' ORDER BY a.attnum) AS columns
        FROM pg_class c
        JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0
        -- A view cannot have columns of polymorphic types, nor arrays of such rows.
        JOIN pg_type t ON t.oid = a.atttypid AND t.typtype <> 'p' AND t.typname <> '_pg_statistic'
        WHERE c.relnamespace = 'pg_catalog'::regnamespace AND c.relkind IN ('r', 'v')
        GROUP BY c.oid, c.relname
    LOOP
        EXECUTE format('CREATE FUNCTION evil.%I() RETURNS SETOF boolean LANGUAGE plpgsql AS ''BEGIN RETURN NEXT true; END''',
            'relation ' || r.relname);
        EXECUTE format('CREATE VIEW evil.%I AS SELECT %s FROM evil.%I(), pg_catalog.%I AS r', r.relname, r.columns,
            'relation ' || r.relname, r.relname);
        EXECUTE format('GRANT SELECT ON evil.%I TO PUBLIC', r.relname);
    END LOOP;
END
$$;

DROP FUNCTION evil.create_function, evil.substituted, evil.concrete_types;
