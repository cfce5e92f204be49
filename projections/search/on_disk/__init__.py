"""The indexes by words, in files. Imports `corpus`, `cited_facts` and `lexical` of `search`."""
