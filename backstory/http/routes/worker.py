"""Routes of a worker: whether it works, whether its engine answers, and metrics. None is about a memory."""

from __future__ import annotations

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from backstory.home import Backstory
from backstory.http.metrics import CONTENT_TYPE, WorkerMetrics
from backstory.http.routes.home import health_answer, wrong_with_store
from backstory.integrations.threads import run_in_thread
from backstory.worker import Worker

__all__ = ["worker_app"]

_LATE_SECONDS = 300.0
"""How long a worker may be at one step, such as a question to the engine or opening a long memory."""


def worker_app(worker: Worker, home: Backstory, metrics: WorkerMetrics) -> Starlette:
    """Return the three routes as an ASGI app."""

    async def healthz(_: Request) -> Response:
        """Say that the loop goes on that looks for new turns; 503 if not."""
        late = worker.seconds_late() > _LATE_SECONDS
        return health_answer("loop" if late else None)

    async def readyz(_: Request) -> Response:
        """Say that the engine answered the last look, and takes commits; 503 if not."""
        if not worker.answered:
            return health_answer("store")
        return health_answer(await run_in_thread(wrong_with_store, home))

    async def read_metrics(_: Request) -> Response:
        """Return counts and times, without content and without names of users."""
        return Response(metrics.text_of(worker, home), media_type=CONTENT_TYPE)

    app = Starlette(routes=[Route("/healthz", healthz), Route("/readyz", readyz), Route("/metrics", read_metrics)])
    app.router.redirect_slashes = False
    return app
