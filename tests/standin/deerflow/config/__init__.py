"""The host's configuration."""
