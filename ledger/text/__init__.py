"""Recognisers over plain text: uploads, injected blocks, acknowledgements, JSON, tags. May import `core`."""
