"""Web page of the server, and its graph as a file of its own: the files, and what serves and bundles them.

May import nothing of the ledger, and of the projections the graph.
"""

from backstory.page.bundle import PAGE_BEGINS, graph_page

__all__ = ["PAGE_BEGINS", "graph_page"]
