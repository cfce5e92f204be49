"""A plan with numbers for many users: a day is simulated from stated assumptions; `python -m benchmarks.planning`."""
