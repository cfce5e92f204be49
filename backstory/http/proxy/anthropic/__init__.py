"""Anthropic's protocol: messages, also in the shape of Claude Code's requests.

It may import `protocol`, `answers` and `access`, and nothing else of the server.
"""
