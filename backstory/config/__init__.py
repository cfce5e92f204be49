"""Configuration: settings, their sources, and the models, stores and embedders built from them.

It may import `ledger`, `projections` and `witness`.
"""
