"""Outbox: conversations that could not be recorded wait here and are tried again; memory never breaks an answer."""
