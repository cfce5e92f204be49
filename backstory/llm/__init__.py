"""Plug-in of `llm`, Simon Willison's command line: its models a second time, with a memory.

It needs the extra `backstory[llm]`; docs/how-to/llm.md describes it. It may import everything but the other
integrations and the command line.
"""
