-- Version 2 of the tables of linked hives (README.md, *The tables*): a check for each bound that the readers have
-- (rows.py, files.py). Another bound is another version: this file stays as it is.

-- Whether files can lie in one folder: paths without `.` and `..`, none of which is a folder of another one.
CREATE FUNCTION files_fit(names text[], contents bytea[]) RETURNS boolean
LANGUAGE sql IMMUTABLE SET search_path = pg_catalog AS $$
    SELECT coalesce(array_ndims(names), 1) = 1 AND coalesce(array_ndims(contents), 1) = 1
        AND cardinality(names) = cardinality(contents) AND cardinality(names) <= 1000
        AND (SELECT coalesce(bool_and(raw IS NOT NULL), true) AND coalesce(sum(octet_length(raw)), 0) <= 32 << 20
            FROM unnest(contents) AS raw)
        AND (SELECT coalesce(bool_and(path IS NOT NULL AND char_length(path) <= 1000
                AND path !~ '(^|/)[.]{0,2}(/|$)' AND NOT coalesce(starts_with(path || '/', folder), false)
                AND cardinality(string_to_array(path, '/')) <= 32
                AND (SELECT max(octet_length(part)) FROM unnest(string_to_array(path, '/')) AS part) <= 255), true)
            FROM (SELECT path, lag(path || '/') OVER (ORDER BY path || '/' COLLATE "C") AS folder
                FROM unnest(names) AS path) AS paths)
$$;

CREATE FUNCTION is_name(word text) RETURNS boolean LANGUAGE sql IMMUTABLE SET search_path = pg_catalog AS $$
    SELECT word ~ '^[a-z0-9][a-z0-9._-]{0,63}$' AND word !~ '[.][.]'
$$;

CREATE FUNCTION are_words(VARIADIC words text[]) RETURNS boolean LANGUAGE sql IMMUTABLE SET search_path = pg_catalog AS $$
    SELECT bool_and(char_length(word) BETWEEN 1 AND 1000) FROM unnest(words) AS word
$$;

CREATE FUNCTION is_object(value jsonb, VARIADIC wrong jsonpath[]) RETURNS boolean
LANGUAGE sql IMMUTABLE SET search_path = pg_catalog AS $$
    SELECT jsonb_typeof(value) = 'object' AND octet_length(value::text) <= 256 << 10
        AND NOT EXISTS (SELECT FROM unnest(wrong) AS path WHERE jsonb_path_exists(value, path, '{}', true))
$$;

DO $do$
DECLARE
    checks text[] := ARRAY[
        ['hives', 'name', $$is_name(name) AND name <> 'any'$$],
        ['hives', 'identity', $$are_words(identity)$$],
        ['hives', 'agents', $$is_object(agents, 'strict $.* ? (@.type() != "string" && @.type() != "null")')$$],
        ['hives', 'overview', $$is_object(overview, 'strict $.agents ? (@.type() != "object")',
            'strict $.tasks ? (@.type() != "object")', 'strict $.agents.* ? (@.type() != "string")',
            'strict $.tasks.* ? (@.type() != "number" || @ < 0 || @ > 1000000000000 || @.floor() != @)')$$],
        ['hives', 'seen', $$isfinite(seen)$$],
        ['hives', 'events', $$events BETWEEN 0 AND 1000000000000$$],
        ['letters', 'giver', $$is_name(giver)$$],
        ['letters', 'words', $$are_words(id, hive, name, base)$$],
        ['letters', 'text', $$state = 'closed' OR raw IS NOT NULL$$],
        ['letters', 'reason', $$char_length(reason) <= 2000$$],
        ['events', 'hive', $$is_name(hive)$$],
        ['events', 'seq', $$seq BETWEEN 1 AND 1000000000000$$],
        ['events', 'event', $$char_length(event) <= 4 << 20$$],
        ['events', 'at', $$isfinite(at)$$],
        ['tasks', 'names', $$is_name(giver) AND is_name(id) AND is_name(place)$$],
        ['tasks', 'words', $$are_words(key, assignee, role, maker)$$],
        ['tasks', 'files', $$CASE WHEN names = '{}' THEN contents = '{}' ELSE files_fit(names, contents) END$$]];
    part text[];
    relation text;
    fits text;
    broken text;
    role text;
    has_rows boolean;
BEGIN
    FOREACH relation IN ARRAY ARRAY['events', 'letters', 'tasks', 'hives'] LOOP  -- what refers to a hive goes before it
        EXECUTE format('ALTER TABLE %I NO FORCE ROW LEVEL SECURITY', relation);  -- else its owner does not see all
        fits := 'true';
        broken := '';
        FOREACH part SLICE 1 IN ARRAY checks LOOP
            IF part[1] = relation THEN
                fits := format('%s AND (%s)', fits, part[3]);
                broken := broken || format(', CASE WHEN (%s) IS FALSE THEN %L END', part[3], part[1] || '_' || part[2]);
            END IF;
        END LOOP;
        EXECUTE format($$CREATE TABLE %1$I AS SELECT concat_ws(', '%3$s) AS broken, now() AS aside_at, * FROM %2$I
            WHERE (%4$s) IS FALSE$$, relation || '_aside', relation, broken, fits);
        EXECUTE format('ALTER TABLE %I ENABLE ROW LEVEL SECURITY', relation || '_aside');
        IF relation = 'hives' THEN  -- what its process writes anew
            UPDATE hives SET agents = '{}', overview = '{}', seen = now() WHERE name IN (SELECT name FROM hives_aside);
            UPDATE hives SET events = coalesce((SELECT max(seq) FROM events WHERE hive = name), 0) WHERE events < 0;
            EXECUTE format($$UPDATE tasks SET taker = NULL, state = CASE WHEN state = 'taken' AND NOT once THEN 'open' ELSE state END
                WHERE taker IN (SELECT name FROM hives WHERE (%s) IS FALSE)$$, fits);
        END IF;
        EXECUTE format('DELETE FROM %I WHERE (%s) IS FALSE', relation, fits);
        EXECUTE format('SELECT EXISTS (SELECT FROM %I)', relation || '_aside') INTO has_rows;
        IF NOT has_rows THEN
            EXECUTE format('DROP TABLE %I', relation || '_aside');
        END IF;
    END LOOP;
    FOREACH part SLICE 1 IN ARRAY checks LOOP
        EXECUTE format('ALTER TABLE %I ADD CONSTRAINT %I CHECK (%s)', part[1], part[1] || '_' || part[2], part[3]);
    END LOOP;

    -- Who speaks for a hive. Its role alone sees that: an advisory lock could be taken by anybody.
    CREATE TABLE places (
        hive text PRIMARY KEY REFERENCES hives (name) ON DELETE CASCADE,
        holder text NOT NULL, generation bigint NOT NULL, lease timestamptz NOT NULL);
    ALTER TABLE places ENABLE ROW LEVEL SECURITY;
    CREATE POLICY own ON places USING (hive IN (SELECT hives.name FROM hives
        WHERE hives.role IN (SELECT rolname FROM pg_roles WHERE pg_has_role(oid, 'member'))));
    FOR role IN SELECT DISTINCT CASE grantee WHEN 0 THEN 'PUBLIC' ELSE grantee::regrole::text END
        FROM pg_class, aclexplode(relacl) WHERE oid = 'hives'::regclass AND grantee <> relowner
    LOOP
        EXECUTE 'GRANT SELECT, INSERT, UPDATE, DELETE ON places TO ' || role;
    END LOOP;
    FOREACH relation IN ARRAY ARRAY['events', 'letters', 'tasks', 'hives', 'places'] LOOP
        EXECUTE format('ALTER TABLE %I FORCE ROW LEVEL SECURITY', relation);
    END LOOP;
END $do$;

-- What was said stays as it was said: whoever may take a row may not write it in another's name, nor another text.
CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
    RAISE insufficient_privilege USING MESSAGE = 'what was said stays as it was said';
END $$;
CREATE TRIGGER said BEFORE UPDATE OF giver, id, hive, name, base ON letters FOR EACH ROW EXECUTE FUNCTION refuse();
CREATE TRIGGER said BEFORE UPDATE OF giver, id, key, place, assignee, role, priority, once, maker ON tasks
    FOR EACH ROW EXECUTE FUNCTION refuse();
CREATE TRIGGER said_text BEFORE UPDATE OF head, body, names, contents ON tasks
    FOR EACH ROW WHEN (new.state IN ('open', 'taken')) EXECUTE FUNCTION refuse();
CREATE TRIGGER ended BEFORE UPDATE OF state ON tasks FOR EACH ROW
    WHEN (old.state IN ('done', 'failed', 'closed') AND new.state IN ('open', 'taken')) EXECUTE FUNCTION refuse();
