"""Routes about the whole home: its scopes, who asks, health, metrics."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Request
from starlette.responses import Response

from backstory.home import Backstory
from backstory.http.exchange import JsonResponse, caller_of, home_of
from backstory.http.metrics import CONTENT_TYPE, Metrics
from backstory.http.openapi.schemas import problem, returns
from backstory.http.pages import CallerShown, Health, ScopePage, UnreadableScope
from backstory.http.routes.parameters import operation_id, versioned
from backstory.http.routes.reading import Cursor, Limit
from backstory.integrations.threads import run_in_thread
from backstory.ledger.core.errors import NotFoundError, UnavailableError
from backstory.projections.integrity.disk_check import examine_writing
from backstory.results import ScopeSummary
from backstory.version import __version__

router = versioned("Home")
unversioned = APIRouter(tags=["Home"], generate_unique_id_function=operation_id)

_READY = returns(Health)
_READY[503]["content"] = {**_READY[503]["content"], **_READY[200]["content"]}


@router.get("/scopes", responses=returns(ScopePage))
async def list_scopes(
    request: Request,
    prefix: Annotated[str, Query(max_length=1000, description="Only users whose id begins so.")] = "",
    limit: Limit = 100,
    cursor: Cursor = None,
) -> Response:
    """List the users and agents that have a memory and that the token covers."""
    home, caller = home_of(request), caller_of(request)

    def read() -> Response:
        found = home.find_owners(prefix, users=caller.users, after=cursor, limit=limit + 1)
        shown = found.owners[:limit]
        summaries: list[ScopeSummary] = []
        unreadable: list[UnreadableScope] = []
        for scope in shown:
            try:
                summaries.append(home.summary(scope))
            except UnavailableError as error:
                unreadable.append(UnreadableScope(scope.user, scope.agent, str(error)))
        following = shown[-1].folder if len(found.owners) > limit else None
        page = ScopePage(tuple(summaries), following, tuple(unreadable), found.users)
        return JsonResponse(page, headers={"Cache-Control": "no-store"})

    return await run_in_thread(read)


@router.get("/caller", responses=returns(CallerShown))
async def get_caller(request: Request) -> Response:
    """Say whose token this is, what it may do, and whose memories it covers."""
    caller = caller_of(request)
    users = None if caller.users is None else tuple(sorted(caller.users))
    shown = CallerShown(caller.name, str(caller.right), users, caller.own_user, __version__)
    return JsonResponse(shown, headers={"Cache-Control": "no-store"})


@unversioned.get("/healthz", responses=returns(Health))
async def healthz() -> Response:
    """Say that the server runs."""
    return health_answer(None)


@unversioned.get("/readyz", responses=_READY)
async def readyz(request: Request) -> Response:
    """Say whether the home and its store can be read and written; 503 if not."""
    home = home_of(request)

    def check() -> Response:
        wrong = next((check.check for check in examine_writing(home.home) if not check.ok), None) or wrong_with_store(
            home
        )
        # The hint names folders, which a caller without a token must not see.
        return health_answer(wrong)

    return await run_in_thread(check)


def health_answer(wrong: str | None) -> Response:
    """Answer with what is wrong; None where nothing is."""
    return JsonResponse(Health(ok=True) if wrong is None else Health(ok=False, detail=wrong), 503 if wrong else 200)


def wrong_with_store(home: Backstory) -> str | None:
    """Return what keeps the store from taking commits; None where it answers, and has not moved."""
    try:
        return None if home.store.seal() is None else "seal"
    except UnavailableError:
        return "store"


@unversioned.get(
    "/metrics",
    response_class=Response,
    responses={200: {"description": "Metrics for Prometheus.", "content": {"text/plain": {}}}, 404: problem(404)},
)
async def metrics(request: Request) -> Response:
    """Return counts and times, without content and without names of users. The token has to cover all users."""
    if caller_of(request).users is not None:
        raise NotFoundError("metrics are about all users: use a token that covers all of them")
    found: Metrics = request.app.state.metrics
    return Response(await run_in_thread(found.text, home_of(request)), media_type=CONTENT_TYPE)
