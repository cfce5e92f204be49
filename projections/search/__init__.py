"""Finding facts and turns again: by words, by meaning, and by both."""
