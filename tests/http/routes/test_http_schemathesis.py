"""Schemathesis: requests of every shape that the OpenAPI document allows or forbids, each answered as it describes."""

from __future__ import annotations

import functools
import tempfile
from pathlib import Path
from typing import Any

import pytest
import schemathesis
from fakes import ScriptedModel, reply
from httpx2 import InvalidURL
from hypothesis import HealthCheck, Phase, given, reject, settings
from hypothesis import strategies as st
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    negative_data_rejection,
    response_schema_conformance,
    status_code_conformance,
)
from schemathesis.specs.openapi.schemas import OpenApiSchema
from served_home import Server, copied
from sizes import PATIENT, sized

from backstory.http.access.tokens import TokenFile
from backstory.http.app import ServerOptions

CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_schema_conformance,
    negative_data_rejection,
]


TAKES_NOTHING = frozenset(
    {
        "get_caller",
        "healthz",
        "readyz",
        "metrics",
        "deerflow_get_memory",
        "deerflow_clear_memory",
        "deerflow_export_memory",
        "deerflow_reload_memory",
        "deerflow_delete_fact",
        "deerflow_get_config",
        "deerflow_get_status",
    }
)


@functools.cache
def schema() -> OpenApiSchema:
    """The document, which is the same for every server."""
    with tempfile.TemporaryDirectory() as folder:
        server = Server(Path(folder) / "home")
        server.home.close()
        return schemathesis.openapi.from_dict(server.app.openapi())


@functools.cache
def operations() -> dict[str, tuple[str, str]]:
    """Every operation of the document, by its id."""
    return {
        operation["operationId"]: (path, method)
        for path, methods in schema().raw_schema["paths"].items()
        for method, operation in methods.items()
    }


@pytest.mark.slow
@PATIENT
@pytest.mark.parametrize(
    ("name", "mode"),
    [
        pytest.param(name, mode, id=f"{name}-{kind}")
        for name in operations()
        for mode, kind in ((GenerationMode.POSITIVE, "allowed"), (GenerationMode.NEGATIVE, "forbidden"))
        # Where a request takes nothing, nothing in it can be wrong.
        if mode is GenerationMode.POSITIVE or name not in TAKES_NOTHING
    ],
)
def test_each_answer_is_one_that_the_document_describes(tmp_path: Path, name: str, mode: GenerationMode) -> None:
    path, method = operations()[name]
    copied(tmp_path / "home")
    token = TokenFile(tmp_path / "tokens.json").add("tests", "erase", ("ada",)).token
    options = ServerOptions(tokens=TokenFile(tmp_path / "tokens.json"))
    server = Server(tmp_path / "home", ScriptedModel(reply("likes tea"), repeat=True), options)
    server.app.state.news.end()  # a stream of events ends at once
    operation = schema()[path][method.upper()]

    with server.client() as client:

        @given(
            case=operation.as_strategy(generation_mode=mode),
            known=st.booleans(),
            header=st.sampled_from([{}, {"Authorization": f"Bearer {token}"}, {"Authorization": f"Bearer {token}"}]),
        )
        @settings(
            max_examples=sized(4, 400),
            suppress_health_check=list(HealthCheck),
            deadline=None,
            database=None,
            phases=(Phase.generate,),
        )
        def answers(case: Any, known: bool, header: dict[str, str]) -> None:
            if known and mode is GenerationMode.POSITIVE:
                # So that some of the requests are about what is there.
                if "fact_id" in (case.path_parameters or {}):
                    case.path_parameters = {"fact_id": "fact_2_1"}
                if case.query:
                    case.query = {**case.query, "user": "ada"}
            sent = case.as_transport_kwargs(base_url="http://127.0.0.1:8765")
            sent["headers"] = {**sent["headers"], **header}
            if isinstance(sent.get("data"), bytes | str):
                sent["content"] = sent.pop("data")
            try:
                response = client.request(**{key: each for key, each in sent.items() if key != "cookies" or each})
            except InvalidURL:
                reject()  # the client does not send so long a URL
            checks = CHECKS if header else CHECKS[:4]
            case.validate_response(response, checks=checks)

        answers()
