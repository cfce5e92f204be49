"""Bare server to compare with: one FastAPI route that returns bytes as they are, under the server's own uvicorn.

Started as `python -m benchmarks.bare_server FILE`; it prints its port.
"""

from __future__ import annotations

import sys
from pathlib import Path

import uvicorn
from fastapi import FastAPI
from starlette.requests import Request
from starlette.responses import Response

from backstory.http.server import listen


def bare(body: bytes) -> FastAPI:
    """Return an app that answers GET /document with these bytes, and 304 to whom has their ETag."""
    app = FastAPI()

    @app.get("/document")
    async def document() -> Response:
        return Response(body, media_type="application/json")

    @app.get("/unchanged")
    async def unchanged(request: Request) -> Response:
        return Response(status_code=304, headers={"ETag": request.headers["if-none-match"]})

    return app


def main() -> None:
    listener = listen("127.0.0.1", 0)
    config = uvicorn.Config(
        bare(Path(sys.argv[1]).read_bytes()),
        http="httptools",
        ws="none",
        loop="uvloop",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
    )
    print(listener.socket.getsockname()[1], flush=True)
    uvicorn.Server(config).run(sockets=[listener.socket])


if __name__ == "__main__":
    main()
