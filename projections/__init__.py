"""The read side: everything derived from the log. Deleting all of it loses nothing."""
