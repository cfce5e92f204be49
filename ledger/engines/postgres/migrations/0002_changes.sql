-- Find what changed since a transaction, however many lines came since the last vacuum: until then a BRIN index knows
-- nothing of them, so each look read them all.

CREATE INDEX commits_changes ON backstory.commits (xid);
DROP INDEX IF EXISTS backstory.commits_xid;
