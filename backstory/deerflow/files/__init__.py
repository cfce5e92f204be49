"""DeerFlow's own files: where they lie, and the one file that is written among them.

May import the home and what lies below it, and nothing of the folder above.
"""
