"""Index: where in a scope's logs what stands, kept in `index.sqlite`. May import `history`."""
