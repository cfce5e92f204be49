"""Log: durable streams of commits, one writer and one reader for each scope.

May import everything but `learning`, `extraction` and `importing`.
"""
