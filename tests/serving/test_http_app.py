"""The server as a client sees it: answers, limits, and no answer that is the server's fault."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest
import requests
import torch
import uvicorn

from seq2sweep.cli import main
from seq2sweep.config import Config
from seq2sweep.decode.beam import NO_NUMBERS, OurSearch, Translation
from seq2sweep.decode.streaming import Part
from seq2sweep.errors import UserError
from seq2sweep.evaluate.translator import Translator
from seq2sweep.model import products
from seq2sweep.serving import http_app, http_server
from seq2sweep.serving.batcher import GivenUpError
from seq2sweep.serving.http_app import Answers, app
from seq2sweep.serving.http_server import LOOPBACK
from seq2sweep.serving.limits import check

from ..conftest import Corpus
from ..export import made_up_models

LINES = ["alpha beta gamma", "", "rot grün gelb alpha", "delta <b>&amp;", "beta " * 30]


class Client:
    """Of a server in a thread of this process."""

    def __init__(self, translator: Translator, token: str | None = None) -> None:
        self.translator, self.answers = translator, Answers(translator)
        listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"http://127.0.0.1:{listener.getsockname()[1]}"
        config = uvicorn.Config(
            app(self.answers, token, LOOPBACK), log_level="critical", timeout_graceful_shutdown=1
        )
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(target=self._server.run, args=([listener],))
        self._thread.start()

    def post(self, path: str, body: Any, **more: Any) -> requests.Response:
        return requests.post(self.address + path, json=body, timeout=20, **more)

    def close(self) -> None:
        self._server.should_exit = True
        self._thread.join(20)
        self.answers.batcher.close()


Start = Callable[..., Client]


@pytest.fixture(scope="module")
def client(
    tiny_config: Config, tiny_corpus: Corpus, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Client]:
    """Of a model of the paper's kind, for tests that leave the server as it was."""
    folder = tmp_path_factory.mktemp("model")
    made = Client(made_up_models.translator(folder, tiny_config, tiny_corpus))
    yield made
    made.close()


@pytest.fixture
def start(tiny_config: Config, tiny_corpus: Corpus, tmp_path: Path) -> Iterator[Start]:
    """Start a server of a model of a kind; about: what it says of itself, evaluate: settings."""
    clients = []

    def started(
        kind: str = made_up_models.PAPER,
        token: str | None = None,
        about: dict[str, Any] | None = None,
        **evaluate: Any,
    ) -> Client:
        evaluated = dataclasses.replace(tiny_config.evaluate, **evaluate)
        config = dataclasses.replace(tiny_config, evaluate=evaluated)
        translator = made_up_models.translator(tmp_path / kind, config, tiny_corpus, kind)
        translator.about = about or translator.about
        clients.append(Client(translator, token))
        return clients[-1]

    yield started
    for client in clients:
        client.close()


def shown(found: list[list[Any]]) -> list[list[dict[str, Any]]]:
    return [
        [{"text": one.text, "score": pytest.approx(one.score)} for one in best] for best in found
    ]


def test_translations_are_those_of_the_translator(client: Client) -> None:
    asked: dict[str, Any] = {"beam": 3, "alpha": 1, "stopping": "own_length"}
    config = client.translator.searched(2, **asked)
    assert client.answers.search(http_app.TranslateRequest(text="alpha", **asked)) == config
    expected = shown(client.translator.translate(LINES, 2, config=config))
    answer = client.post("/translate", {"text": LINES, **asked, "n_best": 2})
    assert answer.json() == {"translations": expected}
    expected = shown(client.translator.translate(LINES[:1]))
    assert client.post("/translate", {"text": LINES[0]}).json() == {"translations": expected}


def test_requests_at_the_same_time_get_each_their_own(client: Client) -> None:
    asked = [
        {"text": [LINES[i % 4], f"alpha {'beta ' * (i % 7)}"], "beam": 1 + i % 3} for i in range(30)
    ]
    with ThreadPoolExecutor(20) as pool:
        found = list(pool.map(lambda body: client.post("/translate", body).json(), asked))
    for body, answer in zip(asked, found, strict=True):
        config = client.translator.searched(beam=body["beam"])
        expected = client.translator.translate(body["text"], config=config)  # type: ignore[arg-type]
        assert answer == {"translations": shown(expected)}


@pytest.mark.parametrize("line", LINES)
@pytest.mark.parametrize("beam", [1, 4])
def test_a_stream_joins_to_the_translation(client: Client, line: str, beam: int) -> None:
    config = client.translator.searched(beam=beam)
    [[expected]] = client.translator.translate([line], config=config)
    answer = client.post("/stream", {"text": line, "beam": beam}, stream=True)
    parts = [json.loads(part) for part in answer.iter_lines()]
    assert "".join(part["text"] for part in parts) == expected.text
    last = {"text": expected.text, "score": pytest.approx(expected.score)}
    assert parts[-1]["translation"] == last
    assert all("translation" not in part for part in parts[:-1])


def test_the_attention_page_is_that_of_the_pair(client: Client) -> None:
    answer = client.post("/attend", {"text": "alpha beta", "target": "gamma <script>"})
    assert answer.status_code == 200
    assert "memory_attention" in answer.text
    assert "gamma <script>" not in answer.text


@pytest.mark.parametrize("long", ["text", "target"])
def test_what_is_too_long_to_draw_is_refused_and_not_searched(
    client: Client, monkeypatch: pytest.MonkeyPatch, long: str
) -> None:
    searched: list[Any] = []
    monkeypatch.setattr(client.translator, "translate", searched.append)
    tokens = len(client.translator.vocabulary.encode(["alpha " * 130])[0])
    body = {"text": "alpha"} | {long: "alpha " * 130}
    answer = client.post("/attend", body)
    said = {"error": f"{tokens} tokens are too many to draw: send at most 128"}
    assert (answer.status_code, answer.json(), searched) == (422, said, [])


def test_a_translation_that_is_too_long_to_draw_is_told_as_such(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Though what was sent is short enough."""
    long = Translation("gamma", 0.0, [5] * 129)
    monkeypatch.setattr(client.translator, "translate", lambda *given, **named: [[long]])
    answer = client.post("/attend", {"text": "alpha"})
    said = "the translation has 129 tokens, too many to draw: send a shorter text"
    assert (answer.status_code, answer.json()) == (422, {"error": said})


def test_it_says_what_the_model_is(client: Client) -> None:
    about = requests.get(client.address + "/model", timeout=20).json()
    assert about["parameters"] == sum(p.numel() for p in client.translator.model.parameters())
    assert about["settings"]["evaluate"]["beam"] == client.translator.config.beam
    assert "secret" not in json.dumps(about)
    assert "folder" in client.translator.settings["data"]
    assert "folder" not in about["settings"]["data"]
    assert requests.get(client.address + "/health", timeout=20).json() == {"status": "ok"}
    page = requests.get(client.address + "/", timeout=20).text
    assert not re.search(r"(src|href)=.?https?:", page)
    assert page.count("<textarea ") == page.count(' dir="auto"') == 2  # in letters of any direction
    schema = requests.get(client.address + "/openapi.json", timeout=20).json()
    body = schema["paths"]["/translate"]["post"]["requestBody"]["content"]["application/json"]
    assert set(body["schema"]["properties"]) == {"text", "beam", "alpha", "stopping", "n_best"}


def test_what_a_strangers_model_says_of_itself_is_told_as_json(start: Start) -> None:
    about = {"cost": {"flops": float("nan"), "hours": [float("inf")]}, "run": "\ud800ü"}
    answer = requests.get(start(about=about).address + "/model", timeout=20)
    assert (answer.status_code, answer.headers["content-type"]) == (200, "application/json")
    found = json.loads(answer.text, parse_constant=pytest.fail)["about"]
    assert found == {"cost": {"flops": None, "hours": [None]}, "run": "\ud800ü"}


HOSTILE: list[tuple[Any, int, str]] = [
    (b"", 400, "no JSON"),
    (b"{", 400, "no JSON"),
    (b"[" * 400_000, 400, "no JSON"),
    (b'{"text": "' + b"\xff" + b'"}', 400, "no JSON"),
    (b'{"text": ' + b"1" * 10_000 + b"}", 400, "no JSON"),
    (b'{"text": "' + b"a " * 600_000 + b'"}', 413, "too long"),
    ([], 422, "valid dictionary"),
    (None, 422, "valid dictionary"),
    ({}, 422, "text: Field required"),
    ({"text": 5}, 422, "text"),
    ({"text": None}, 422, "text"),
    ({"text": [["a"]]}, 422, "text"),
    (
        {"text": "a", "beem": 5},
        422,
        "beem: unknown key, known are beam, alpha, stopping, text, n_best",
    ),
    ({"text": "a", "stopping": "early"}, 422, "stopping"),
    ({"text": "a", "beam": 0}, 422, "beam"),
    ({"text": "a", "beam": 10**9}, 422, "beam"),
    ({"text": "a", "beam": "4"}, 422, "beam"),
    ({"text": "a", "beam": 1.5}, 422, "beam"),
    ({"text": "a", "beam": True}, 422, "beam"),
    ({"text": "a", "alpha": -1}, 422, "alpha"),
    (b'{"text": "a", "alpha": NaN}', 422, "alpha"),
    (b'{"text": "a", "alpha": 1e999}', 422, "alpha"),
    ({"text": "a", "n_best": 9}, 422, "n_best is 9"),
    ({"text": "a\nb"}, 422, "line break"),
    ({"text": "a\u2028b"}, 422, "line break"),
    (b'{"text": "\\ud800"}', 422, "an unpaired surrogate (U+D800 to U+DFFF)"),
    (b'{"\\ud800": 1}', 422, "?: unknown key"),
    ({"text": ["a"] * 65}, 422, "65 lines: send at most 64"),
    ({"text": "alpha " * 2000}, 422, "tokens: send at most"),
    ({"text": "alpha " * 3000}, 422, "18000 characters: send at most 16384"),
    ({"text": [1] * 300_000}, 422, "300000 lines: send at most 64"),
    ({str(i): i for i in range(60_000)}, 422, "0: unknown key"),
    ({"text": ["alpha " * 100] * 64, "beam": 16}, 422, "tokens times beam 16 are too much"),
]


@pytest.mark.parametrize(
    ("body", "encoded", "said"),
    [
        ({"text": ["alpha", "alpha " * 2000, "alpha"]}, 2, "text 2 has"),
        ({"text": ["alpha " * 900] * 64, "beam": 16}, 3, "tokens times beam 16 are too much"),
    ],
)
def test_texts_after_the_one_that_is_refused_are_not_encoded(
    client: Client, monkeypatch: pytest.MonkeyPatch, body: dict[str, Any], encoded: int, said: str
) -> None:
    """That of long ones into word pieces takes seconds."""
    seen: list[str] = []
    encode = client.translator.vocabulary.encode

    def counted(lines: list[str]) -> list[list[int]]:
        seen.extend(lines)
        return encode(lines)

    monkeypatch.setattr(client.translator.vocabulary, "encode", counted)
    answer = client.post("/translate", body)
    assert (answer.status_code, len(seen)) == (422, encoded)
    assert said in answer.json()["error"]


@pytest.mark.parametrize(("body", "status", "said"), HOSTILE)
@pytest.mark.parametrize("path", ["/translate", "/stream", "/attend"])
def test_what_cannot_be_answered_is_a_4xx_of_one_line(
    client: Client, path: str, body: Any, status: int, said: str
) -> None:
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    headers = {"Content-Type": "application/json"}
    answer = requests.post(client.address + path, data=data, headers=headers, timeout=20)
    assert 400 <= answer.status_code < 500
    line = answer.json()["error"]
    assert "\n" not in line
    assert len(line) <= 300
    if path == "/translate":
        assert (answer.status_code, said in line) == (status, True), line
    # The next one is answered as ever.
    assert client.post("/translate", {"text": "alpha"}).status_code == 200


def test_only_json_from_its_own_address_is_read(client: Client) -> None:
    plain = requests.post(client.address + "/translate", data='{"text": "a"}', timeout=20)
    assert plain.status_code == 415
    for host in ("evil.example", "evil.example:8000", "127.0.0.1.evil.example", ""):
        answer = client.post("/translate", {"text": "a"}, headers={"Host": host})
        assert (answer.status_code, "own address" in answer.text) == (403, True)
    port = client.address.rpartition(":")[2]
    for host in ("localhost", f"localhost:{port}", f"127.0.0.1:{port}", f"[::1]:{port}"):
        assert client.post("/translate", {"text": "a"}, headers={"Host": host}).status_code == 200


def test_with_a_token_nothing_is_said_without_it(start: Start) -> None:
    client = start(token="geheim")
    for headers in ({}, {"Authorization": "Bearer falsch"}, {"Authorization": "geheim"}):
        for path in ("/translate", "/stream", "/attend"):
            assert client.post(path, {"text": "a"}, headers=headers).status_code == 401
        for path in ("/model", "/openapi.json"):
            answer = requests.get(client.address + path, headers=headers, timeout=20)
            assert answer.status_code == 401
    headers = {"Authorization": "Bearer geheim", "Host": "elsewhere.example"}
    assert client.post("/translate", {"text": "a"}, headers=headers).status_code == 200
    page = requests.get(client.address + "/", timeout=20)
    assert 'id="token"' in page.text
    assert "geheim" not in page.text


def test_too_many_that_wait_are_told_to_come_again(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_app, "MOST_WAITING", 2)
    client = start()
    held = threading.Event()
    busy = client.answers.batcher.run(lambda: held.wait(20))
    time.sleep(0.2)
    with ThreadPoolExecutor(4) as pool:
        asked = [pool.submit(client.post, "/translate", {"text": "a"}) for _ in range(4)]
        time.sleep(0.5)
        held.set()
        statuses = sorted(answer.result().status_code for answer in asked)
    assert busy.result()
    assert statuses == [200, 200, 429, 429]


def test_one_that_takes_too_long_is_given_up(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_app, "SECONDS", 0.2)
    held = threading.Event()
    client.answers.batcher.run(lambda: held.wait(20))
    answer = client.post("/translate", {"text": "a"})
    assert (answer.status_code, "not done in" in answer.json()["error"]) == (503, True)
    held.set()
    assert client.post("/translate", {"text": "a"}).status_code == 200


def test_lack_of_memory_is_told_and_the_next_one_is_answered(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:

    def refuse(*_: Any, **__: Any) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 9.00 GiB")

    with monkeypatch.context() as patch:
        patch.setattr(OurSearch, "begin", refuse)
        paths = ("/translate", "/stream", "/attend")
        answers = [client.post(path, {"text": "alpha"}) for path in paths]
    for answer in answers:
        assert answer.status_code == 503
        said = answer.json()["error"]
        assert said.startswith("out of memory (OutOfMemoryError: CUDA out of m")
        assert said.endswith("): send less text")
    assert client.post("/translate", {"text": "alpha"}).status_code == 200


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (MemoryError(), "out of memory (MemoryError): send less text"),
        (UserError(NO_NUMBERS), NO_NUMBERS),
    ],
)
def test_what_goes_wrong_ends_a_stream_with_a_line(
    client: Client, monkeypatch: pytest.MonkeyPatch, error: Exception, said: str
) -> None:
    def parts(*_: Any) -> Iterator[Part]:
        yield Part(0, "alpha ")
        raise error

    monkeypatch.setattr(http_app, "stream", parts)
    answer = client.post("/stream", {"text": "alpha beta gamma"})
    assert answer.status_code == 200
    assert [json.loads(line) for line in answer.text.splitlines()] == [
        {"text": "alpha "},
        {"error": said},
    ]


def test_a_part_that_takes_too_long_ends_a_stream_with_a_line(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = threading.Event()

    def parts(*_: Any) -> Iterator[Part]:
        yield Part(0, "alpha ")
        held.wait(20)

    monkeypatch.setattr(http_app, "stream", parts)
    monkeypatch.setattr(http_app, "SECONDS", 0.5)
    answer = client.post("/stream", {"text": "alpha beta gamma"})
    held.set()
    last = json.loads(answer.text.splitlines()[-1])
    assert last == {"error": "not done in 0.5 seconds: send less text, or try again"}


def test_a_stream_ends_with_its_translation(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No turn of the search is waited for, after which an error could still come."""
    held = threading.Event()

    def parts(*_: Any) -> Iterator[Part]:
        yield Part(0, "alpha", Translation("alpha", 0.0))
        held.wait(20)

    monkeypatch.setattr(http_app, "stream", parts)
    monkeypatch.setattr(http_app, "SECONDS", 0.5)
    answer = client.post("/stream", {"text": "alpha"})
    held.set()
    (line,) = answer.text.splitlines()
    assert json.loads(line)["translation"]["text"] == "alpha"


def test_what_the_end_of_the_server_gives_up_is_told(start: Start) -> None:
    client = start()
    held, begun = threading.Event(), threading.Event()

    def hold() -> None:
        begun.set()
        assert held.wait(20)

    with ThreadPoolExecutor(1) as pool:
        busy = client.answers.batcher.run(hold)
        assert begun.wait(20)
        asked = pool.submit(client.post, "/translate", {"text": "alpha"})
        until(lambda: len(client.answers.batcher._waiting) == 1)
        client._server.should_exit = True
        answer = asked.result()
    assert (answer.status_code, "server ends" in answer.json()["error"]) == (503, True)
    held.set()
    busy.result(20)


def test_who_hangs_up_is_not_searched_for(client: Client) -> None:
    held = threading.Event()
    client.answers.batcher.run(lambda: held.wait(20))

    def waiting() -> list[Any]:
        return list(client.answers.batcher._waiting)

    where = client.address.removeprefix("http://").split(":")
    with socket.create_connection((where[0], int(where[1]))) as one:
        one.sendall(BEGUN.replace(b"Length: 9", b"Length: 13") + b'"text": "a"}')
        until(lambda: any(one.lines == ["a"] for one in waiting()))
        assert not any(one.answer.cancelled() for one in waiting())
    until(lambda: any(one.answer.cancelled() for one in waiting()))
    held.set()
    assert client.post("/translate", {"text": "alpha"}).status_code == 200


def test_a_search_asks_at_each_step_whether_to_go_on(client: Client) -> None:
    answers = client.answers
    calls = []

    def check() -> None:
        calls.append(1)
        if len(calls) == 3:
            raise GivenUpError

    with pytest.raises(GivenUpError):
        answers._translate(["beta " * 30], (1, answers.translator.config), check)
    assert len(calls) == 3


def test_others_are_answered_while_a_long_text_is_checked(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    held, begun = threading.Event(), threading.Event()

    def slow(*_: Any) -> int:
        begun.set()
        assert held.wait(20)
        return 1

    monkeypatch.setattr(http_app, "check", slow)
    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(client.post, "/translate", {"text": "alpha"})
        assert begun.wait(20)
        assert requests.get(client.address + "/health", timeout=10).status_code == 200
        held.set()
        assert asked.result().status_code == 200


@pytest.mark.parametrize("limit", ["MOST_STREAMS", "MOST_STREAMED"])
def test_streams_are_so_many_at_most(
    client: Client, monkeypatch: pytest.MonkeyPatch, limit: str
) -> None:
    long = "beta " * 60
    work = check(client.translator, [long]) * client.translator.config.beam
    monkeypatch.setattr(http_app, limit, 1 if limit == "MOST_STREAMS" else work)
    held = threading.Event()
    client.answers.batcher.run(lambda: held.wait(20))
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(client.post, "/stream", {"text": long})
        until(lambda: client.answers._streams == 1)
        assert client.post("/stream", {"text": LINES[0]}).status_code == 429
        held.set()
        assert first.result().status_code == 200
    # Nor does one that its client leaves keep its place.
    with client.post("/stream", {"text": long}, stream=True) as left:
        assert left.status_code == 200
    until(lambda: client.answers._streams == 0)
    assert client.post("/stream", {"text": LINES[0]}).status_code == 200


def until(true: Callable[[], bool]) -> None:
    for _ in range(1000):
        if true():
            return
        time.sleep(0.01)
    raise AssertionError("it never was")


@pytest.mark.skipif(not products._LAID_OUT, reason="PyTorch lays out nothing here")
@pytest.mark.parametrize("kind", [made_up_models.PAPER, "recurrent", "convolutional", "bytenet"])
@pytest.mark.parametrize("precision", ["float32", "bf16"])
def test_all_searches_share_one_copy_of_the_weights(
    start: Start, precision: str, kind: str
) -> None:
    if precision == "bf16" and torch.bfloat16 not in products._LAID_OUT:
        pytest.skip("no products in bfloat16 here")
    client = start(kind, precision=precision)
    assert client.post("/stream", {"text": LINES[0]}).status_code == 200
    kept = set(client.answers._laid_out)
    assert kept
    for path, beam in (("/translate", 2), ("/stream", 3), ("/translate", 2)):
        assert client.post(path, {"text": LINES[0], "beam": beam}).status_code == 200
    assert set(client.answers._laid_out) == kept


def test_the_attention_of_a_server_in_bfloat16_copies_no_weights(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = start(precision="bf16")
    copied = Mock(deepcopy=Mock(side_effect=AssertionError))
    monkeypatch.setattr("seq2sweep.decode.beam.copy", copied)
    assert client.post("/attend", {"text": LINES[0]}).status_code == 200


def test_trees_are_answered_and_not_streamed(start: Start) -> None:
    client = start(made_up_models.TREES)
    [[found]] = client.post("/translate", {"text": "alpha beta"}).json()["translations"]
    assert found["text"] == client.translator.translate(["alpha beta"])[0][0].text
    assert client.post("/stream", {"text": "alpha beta"}).status_code == 422


def test_a_model_without_attention_says_so(start: Start) -> None:
    answer = start("bytenet").post("/attend", {"text": "alpha"})
    assert answer.status_code == 422
    assert "attention" in answer.json()["error"]


def test_the_request_of_the_docs_is_answered(client: Client) -> None:
    text = (Path(__file__).parents[2] / "docs/serving.md").read_text(encoding="utf-8")
    found = re.search(r"curl -H '(.*?): (.*?)' -d '(.*?)' \S+(/translate)", text)
    assert found
    key, value, body, path = found.groups()
    answer = requests.post(client.address + path, data=body, headers={key: value}, timeout=20)
    assert len(answer.json()["translations"]) == 1


# --- the command ---------------------------------------------------------------------------------


Refused = Callable[..., str]


@pytest.fixture
def saved(client: Client, tmp_path: Path) -> Path:
    """The folder of a model."""
    client.translator.save(tmp_path / "model")
    return tmp_path / "model"


@pytest.fixture
def refused(
    saved: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Refused:
    """What the command says that refuses these options."""
    monkeypatch.delenv("SEQ2SWEEP_TOKEN", raising=False)

    def said(*options: str) -> str:
        assert main(["serve", "--model", str(saved), *options]) == 2
        return capsys.readouterr().err

    return said


@pytest.mark.parametrize(
    ("key", "value"),
    [("dataset", None), ("source", 5), ("source", "en; ls"), ("target", "de\n\n<script>")],
)
def test_a_strangers_model_names_its_languages(
    key: str,
    value: Any,
    client: Client,
    refused: Refused,
    saved: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """They are shown, and become part of commands that its card has to copy."""
    shutil.rmtree(saved)
    monkeypatch.setitem(client.translator.settings["data"], key, value)
    client.translator.save(saved)
    (line,) = refused().splitlines()
    assert f"config.json of the model is damaged (config.data.{key} is not " in line


def test_the_world_needs_a_token(refused: Refused) -> None:
    assert "set SEQ2SWEEP_TOKEN" in refused("--host", "0.0.0.0")


@pytest.mark.parametrize(
    "token", ["geheim\udcff", "geheim ", "geh\teim", "geh\u00e4im", "geheim\n"]
)
def test_a_token_that_no_request_can_have_is_refused_and_not_shown(
    refused: Refused, monkeypatch: pytest.MonkeyPatch, token: str
) -> None:
    monkeypatch.setenv("SEQ2SWEEP_TOKEN", token)
    said = refused("--host", "a..b")  # where no server could go on, were it taken
    assert "SEQ2SWEEP_TOKEN has a blank or a character that is not printable ASCII" in said
    assert "geh" not in said


def test_a_port_that_is_taken_is_told_with_another(refused: Refused) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert f"--port {port % 65535 + 1}" in refused("--port", str(port))


@pytest.mark.parametrize("host", ["a..b", "x" * 64, "::zz", "192.0.2.1"])
def test_a_host_that_is_none_of_this_machine_is_told(
    refused: Refused, monkeypatch: pytest.MonkeyPatch, host: str
) -> None:
    monkeypatch.setenv("SEQ2SWEEP_TOKEN", "geheim")
    said = refused("--host", host, "--port", "0")
    assert f"cannot listen on {host} (" in said
    assert "give an address of this machine" in said


@contextlib.contextmanager
def served(
    model: Path, *options: str, files: int = 1024
) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """The command in a process that may open so many files, and its address; SIGTERM at the end."""
    command = [sys.executable, "-m", "seq2sweep.cli", "serve", "--port", "0", "--model", model]
    command += options
    server = subprocess.Popen(
        ["bash", "-c", f'ulimit -n {files}; exec "$@"', "bash", *command],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    try:
        assert server.stdout is not None
        opened = re.search(r"http://\S+", server.stdout.readline())
        assert opened
        yield server, opened[0]
        server.send_signal(signal.SIGTERM)
        assert server.wait(30) == 0
        assert server.stderr is not None
        assert server.stderr.read() == ""
    finally:
        server.kill()
        server.wait()


def test_sigterm_finishes_what_has_come(saved: Path) -> None:
    """At an address of one's own; the test below asks at the usual one."""
    body = {"text": [f"alpha {'beta ' * 30}"] * 64, "beam": 4}
    with ThreadPoolExecutor(6) as pool:
        with served(saved, "--host", "127.0.0.2") as (_, address):
            post = functools.partial(requests.post, json=body, timeout=60)
            asked = [pool.submit(post, address + "translate") for _ in range(6)]
            wait(asked, return_when=FIRST_COMPLETED)
        assert [len(one.result().json()["translations"]) for one in asked] == [64] * 6


@pytest.mark.parametrize(("ended", "left"), [(True, []), (False, [0])])
def test_what_still_computes_at_the_end_does_not_crash_it(
    monkeypatch: pytest.MonkeyPatch, ended: bool, left: list[int]
) -> None:
    """Python would end with SIGABRT beside a thread that is inside of torch."""
    batcher = SimpleNamespace(close=lambda seconds: ended)
    monkeypatch.setattr(http_server, "Answers", lambda translator: SimpleNamespace(batcher=batcher))
    monkeypatch.setattr(http_server, "app", lambda *given: None)
    monkeypatch.setattr("uvicorn.Server.run", lambda self, sockets: None)
    codes: list[int] = []
    monkeypatch.setattr("os._exit", codes.append)
    http_server.serve(Mock(), "127.0.0.1", 0, None)
    assert codes == left


BEGUN = (
    b"POST /translate HTTP/1.1\r\nHost: localhost\r\n"
    b"Content-Type: application/json\r\nContent-Length: 9\r\n\r\n{"
)


def test_many_connections_that_send_nothing_keep_nobody_out(saved: Path) -> None:
    with served(saved, files=256) as (_, address), contextlib.ExitStack() as opened:
        where = address.removeprefix("http://").rstrip("/").split(":")
        for number in range(300):
            one = socket.create_connection((where[0], int(where[1])), timeout=20)
            opened.enter_context(one).sendall(BEGUN)
            if number % 20 == 0:
                assert requests.get(address + "health", timeout=20).status_code == 200
