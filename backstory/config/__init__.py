"""Configuration: every key, where values come from, and what is built from them."""
