"""Recognisers over plain text: uploads, injected blocks, acknowledgements, JSON. May import `core`."""
