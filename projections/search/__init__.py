"""Search for facts and turns, by words and by meaning."""
