-- Keep lines and keys out of the planner's statistics: they are samples of values, and no erasure reaches them.

ALTER TABLE backstory.commits ALTER COLUMN line SET STATISTICS 0;
ALTER TABLE backstory.keys ALTER COLUMN key SET STATISTICS 0;
-- The same type again: it rewrites nothing, and drops the samples that were taken before.
ALTER TABLE backstory.commits ALTER COLUMN line TYPE bytea;
ALTER TABLE backstory.keys ALTER COLUMN key TYPE bytea;
