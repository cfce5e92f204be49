"""The index by words over turns, in a file. Imports `corpus`, `cited_facts` and `lexical` of `search`."""
