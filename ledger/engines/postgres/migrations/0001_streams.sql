-- Streams, their commits and keys, and the marks of what was removed.

CREATE TABLE backstory.streams (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    name text COLLATE "C" NOT NULL UNIQUE,
    seq bigint NOT NULL,
    hash text NOT NULL,
    -- The bytes of all lines, with a line break each.
    bytes bigint NOT NULL,
    -- Counts the erasures.
    edition bigint NOT NULL DEFAULT 0
) WITH (fillfactor = 70);  -- Each append updates a head; with room on the page no index has to follow.

CREATE TABLE backstory.commits (
    stream bigint NOT NULL,
    seq bigint NOT NULL,
    line bytea NOT NULL,
    hash text NOT NULL,
    -- The bytes of the lines before this one.
    byte bigint NOT NULL,
    -- The transaction that wrote it last: it orders the changes of all streams.
    xid bigint NOT NULL DEFAULT (pg_current_xact_id()::text)::bigint,
    PRIMARY KEY (stream, seq)
);
CREATE INDEX commits_xid ON backstory.commits USING brin (xid) WITH (pages_per_range = 16);

CREATE TABLE backstory.keys (
    name text COLLATE "C" PRIMARY KEY,
    key bytea NOT NULL
);

CREATE TABLE backstory.removed (
    first text COLLATE "C" PRIMARY KEY,
    at text NOT NULL,
    kind text NOT NULL,
    seq bigint NOT NULL,
    hash text NOT NULL
);

-- Why no stream takes changes; empty while they do. Each change reads it, and so keeps it from being locked.
CREATE TABLE backstory.seal (
    single boolean PRIMARY KEY DEFAULT true CHECK (single),
    state text NOT NULL,
    other text NOT NULL
);

-- The tables in which old versions of erased rows may be left, until they are rewritten.
CREATE TABLE backstory.unclean (
    relation text PRIMARY KEY,
    since xid8 NOT NULL DEFAULT pg_current_xact_id()
);

-- Append to any number of streams, each on its own condition; one row is returned for each of them, in order.
--
--   appended  the lines are there once this transaction commits
--   present   the stream is further on, and these very lines are what follows the expected seq
--   version   the stream's head is `head_seq`, and not the expected one
--   history   the head has another hash than the first line continues
--   locked    another session holds the stream's lock
--   lost      the caller does not hold it any more
--   again     another session has just created the stream
--   sealed    no stream takes changes, except beneath the seal `(own_state, own_other)`
--
-- `locks` and `tokens` are advisory locks. Who holds a stream's lock also holds a token of its own exclusively: as long
-- as that one cannot be taken, its holder lives. A lock is only tried, so nobody who shares this transaction waits.
CREATE FUNCTION backstory.append(
    names text[], locks bigint[], tokens bigint[], expected bigint[], previous text[], counts integer[],
    lines bytea[], hashes text[], own_state text, own_other text
) RETURNS TABLE (outcome text, head_seq bigint)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog AS $$
DECLARE
    stream_id bigint;
    head_hash text;
    size bigint;
    begun bigint;
    number integer;
    before integer := 0;
    sealed boolean;
BEGIN
    -- An append that returned has to survive a power cut, whatever the default of the database is.
    IF current_setting('synchronous_commit') = 'off' THEN
        PERFORM set_config('synchronous_commit', 'on', true);
    END IF;
    SELECT EXISTS (SELECT FROM backstory.seal s WHERE (s.state, s.other) IS DISTINCT FROM (own_state, own_other))
        INTO sealed;
    FOR item IN 1 .. cardinality(names) LOOP
        number := counts[item];
        begun := expected[item];
        SELECT s.id, s.seq, s.hash, s.bytes INTO stream_id, head_seq, head_hash, size
            FROM backstory.streams s WHERE s.name = names[item] FOR UPDATE;
        IF stream_id IS NULL THEN
            head_seq := 0;
            head_hash := repeat('0', 64);
            size := 0;
        END IF;
        IF head_seq <> begun THEN
            outcome := 'version';
            PERFORM FROM backstory.commits c
                WHERE c.stream = stream_id AND c.seq = begun + number AND c.hash = hashes[before + number];
            IF FOUND THEN
                outcome := 'present';
            END IF;
        ELSIF sealed THEN
            outcome := 'sealed';
        ELSIF head_hash <> previous[item] THEN
            outcome := 'history';
        ELSIF tokens[item] IS NULL AND NOT pg_try_advisory_xact_lock_shared(locks[item]) THEN
            outcome := 'locked';
        ELSIF tokens[item] IS NOT NULL AND pg_try_advisory_xact_lock_shared(tokens[item]) THEN
            outcome := 'lost';
        ELSE
            outcome := 'appended';
            IF stream_id IS NULL THEN
                INSERT INTO backstory.streams AS s (name, seq, hash, bytes) VALUES (names[item], 0, head_hash, 0)
                    ON CONFLICT (name) DO NOTHING RETURNING s.id INTO stream_id;
                IF stream_id IS NULL THEN
                    outcome := 'again';
                END IF;
            END IF;
        END IF;
        IF outcome = 'appended' THEN
            INSERT INTO backstory.commits (stream, seq, line, hash, byte)
                SELECT stream_id, begun + a.place, a.line, a.hash,
                       size + sum(octet_length(a.line) + 1) OVER (ORDER BY a.place) - octet_length(a.line) - 1
                FROM unnest(lines[before + 1 : before + number], hashes[before + 1 : before + number])
                    WITH ORDINALITY AS a (line, hash, place);
            SELECT size + sum(octet_length(a.line) + 1) INTO size
                FROM unnest(lines[before + 1 : before + number]) AS a (line);
            head_seq := begun + number;
            UPDATE backstory.streams s SET seq = head_seq, hash = hashes[before + number], bytes = size
                WHERE s.id = stream_id;
        END IF;
        before := before + number;
        RETURN NEXT;
    END LOOP;
END
$$;
REVOKE EXECUTE ON FUNCTION backstory.append FROM PUBLIC;
