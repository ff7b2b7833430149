"""The HTTP answers of a trained model, with limits on all that a stranger may send.

GET /            a page with two boxes and the attention map
POST /translate  {"text": TEXT or a list, "beam", "alpha", "stopping", "n_best"}
                 -> {"translations": of each text the best [{"text", "score"}, ...]}
POST /stream     {"text", "beam", "alpha", "stopping"} -> a line of JSON a part {"text"}, last
                 {"translation"}
POST /attend     {"text", "target"} -> the page of attention maps
GET /model       what is known of the model
GET /health      {"status": "ok"}

What cannot be answered gets {"error": one line}: 400 no JSON, 401 no token, 403 a page of another
site asks, 408 the body did not come, 413 too long, 415 no JSON by its type, 422 wrong values, 429
too many wait, 503 it took too long, or this server ends.
"""

from __future__ import annotations

import asyncio
import contextlib
import copy
import hmac
import json
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from concurrent.futures import Future
from typing import Any, TypeVar, cast

import torch
from fastapi import FastAPI, Request
from fastapi.responses import HTMLResponse, JSONResponse, StreamingResponse
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from seq2sweep.config import EvaluateConfig, without_places
from seq2sweep.decode.beam import OurSearch, Stopping, Translation, best_device
from seq2sweep.decode.streaming import Part, stream
from seq2sweep.errors import OperationalError, UserError, first_line
from seq2sweep.evaluate.attention import attention_maps, head_numbers
from seq2sweep.evaluate.attention.attention_maps import Maps
from seq2sweep.evaluate.translator import Translator
from seq2sweep.hardware import memory_by
from seq2sweep.model.products import laid_out
from seq2sweep.redaction import redact
from seq2sweep.report.attention import attention_page
from seq2sweep.report.templates import environment
from seq2sweep.serving.batcher import Batcher, Check, FullError
from seq2sweep.serving.limits import LARGEST_BEAM, check, check_drawn

LARGEST_BODY = 2**20
MOST_LINES = 64
"""In one request."""
MOST_WORK = 2**15
"""Tokens of all texts of one request, times the beam; and of those that are searched together."""
LARGEST_BATCH = 64
"""Lines that are searched together."""
MOST_WAITING = 4096
"""Lines of all requests that wait."""
MOST_STREAMS, MOST_STREAMED = 32, 4 * MOST_WORK
"""That are open, and their work: each keeps what its search needs to go on."""
SECONDS = 60
"""After which a request that waits is given up."""
SEND_LESS = "send less text"
"""Where memory is refused."""


class Asked(BaseModel):
    """How to search; what is left out is as params.yaml has it."""

    model_config = ConfigDict(extra="forbid", strict=True)
    beam: int | None = Field(None, ge=1, le=LARGEST_BEAM)
    alpha: float | None = Field(None, ge=0, le=10, allow_inf_nan=False)
    stopping: Stopping | None = None


class TranslateRequest(Asked):
    """The body of POST /translate."""

    text: str | list[str]
    n_best: int = Field(1, ge=1, le=LARGEST_BEAM)


class StreamRequest(Asked):
    """The body of POST /stream."""

    text: str


class AttendRequest(BaseModel):
    """The body of POST /attend."""

    model_config = ConfigDict(extra="forbid", strict=True)
    text: str
    target: str | None = None


Search = tuple[int, EvaluateConfig]
"""n_best and how to search; requests of the same are searched together."""
T = TypeVar("T")


class Answers:
    """Of one model, from one thread that searches."""

    def __init__(self, translator: Translator, largest_batch: int = LARGEST_BATCH) -> None:
        self.translator = translator
        self.batcher = Batcher(self._translate, largest_batch, MOST_WAITING, MOST_WORK)
        # No search makes its own copies of the weights, which do not change here.
        self._model = translator.model
        if translator.config.precision == "bf16":
            self._model = copy.deepcopy(translator.model).to(torch.bfloat16)
        self._laid_out: dict[Any, Any] = {}
        self._streams = self._streamed = 0

    def _translate(self, lines: Any, search: Search, check: Check) -> list[list[Translation]]:
        n_best, config = search
        engine = OurSearch(self._model, config, on_step=check, mend=(SEND_LESS,) * 2)
        with laid_out(self._laid_out):
            return self.translator.translate(lines, n_best, engine=engine, config=config)

    def about(self) -> dict[str, Any]:
        """What GET /model says: how it was trained, is searched with and, where known, scored."""
        data, model = self.translator.settings["data"], self.translator.model
        parameters = sum(parameter.numel() for parameter in model.parameters())
        pair = f"{data['source']} to {data['target']}"
        return {
            "title": f"{pair}, {data.get('dataset', '')}, {parameters / 1e6:.2f}M parameters",
            "source": data["source"],
            "target": data["target"],
            "parameters": parameters,
            "settings": without_places(self.translator.settings),
            "about": self.translator.about,
        }

    def search(self, asked: Asked, n_best: int = 1) -> EvaluateConfig:
        """How to search. Raises UserError where that cannot be."""
        changes = asked.model_dump(include={"beam", "alpha", "stopping"}, exclude_none=True)
        return self.translator.searched(n_best, **changes)

    async def check(self, lines: list[str], config: EvaluateConfig) -> int:
        """Tokens of lines times the beam. Raises UserError for lines that cannot be searched as
        they are. Others are answered meanwhile."""
        enough = MOST_WORK // config.beam
        tokens = await asyncio.to_thread(check, self.translator, lines, enough)
        if tokens * config.beam > MOST_WORK:
            raise UserError(
                f"{tokens} or more tokens times beam {config.beam} are too much: send at most "
                f"{MOST_WORK}"
            )
        return tokens * config.beam

    async def translate(self, asked: TranslateRequest) -> Response:
        """POST /translate."""
        lines = [asked.text] if isinstance(asked.text, str) else asked.text
        search = asked.n_best, self.search(asked, asked.n_best)
        work = await self.check(lines, search[1])
        found = await _answer(self.batcher.translate(lines, search, work)) if lines else []
        return JSONResponse({"translations": [[_shown(one) for one in best] for best in found]})

    async def stream(self, asked: StreamRequest) -> Response:
        """POST /stream. Each part is sought in its turn, with other requests between."""
        config = self.search(asked)
        work = await self.check([asked.text], config)
        if self._streams >= MOST_STREAMS or self._streamed + work > MOST_STREAMED:
            raise FullError
        lines = self._lines(asked.text, config, work)
        await anext(lines)
        return _Stream(lines, media_type="application/x-ndjson")

    async def _lines(self, text: str, config: EvaluateConfig, work: int) -> AsyncGenerator[str]:
        """Of the answer; at first none: what goes wrong until then has a status of its own."""
        vocabulary, cleaned = self.translator.vocabulary, self.translator.clean([text])
        parts = stream(self._model, vocabulary, cleaned, config)

        def next_part() -> Part | None:
            with memory_by(SEND_LESS), laid_out(self._laid_out):
                return next(parts, None)

        self._streams, self._streamed = self._streams + 1, self._streamed + work
        try:
            part = await _answer(self.batcher.run(next_part))
            yield ""
            while part is not None:
                last = {"translation": _shown(part.translation)} if part.translation else {}
                yield json.dumps({"text": part.text} | last, ensure_ascii=False) + "\n"
                if last:
                    return
                try:
                    part = await _answer(self.batcher.run(next_part))
                except (FullError, TimeoutError, OperationalError, UserError) as error:
                    yield json.dumps({"error": _said(error)}) + "\n"
                    return
        finally:
            self._streams, self._streamed = self._streams - 1, self._streamed - work

    async def attend(self, asked: AttendRequest) -> Response:
        """POST /attend."""
        lines = [asked.text] if asked.target is None else [asked.text, asked.target]
        await self.check(lines, self.translator.config)
        return HTMLResponse(await _answer(self.batcher.run(lambda: self._attend(lines))))

    @memory_by(SEND_LESS)
    def _attend(self, lines: list[str]) -> str:
        # Where the copy that searches in bfloat16 is too.
        model, vocabulary = self.translator.model.to(best_device()), self.translator.vocabulary
        [source] = vocabulary.encode(self.translator.clean(lines[:1]))
        check_drawn(source)  # before it is searched for
        engine = OurSearch(self._model, self.translator.config, mend=(SEND_LESS,) * 2)
        pairs = attention_maps.pairs(self.translator, lines[:1], lines[1:], engine)
        check_drawn(pairs[0].target, translated=len(lines) == 1)
        maps: list[Maps] = []
        if not (numbers := head_numbers.measure(model, vocabulary, pairs, on_maps=maps.append)):
            raise UserError("this model has no attention to show")
        return attention_page.render(maps, numbers, "")


def _said(error: Exception) -> str:
    if isinstance(error, FullError):
        return "too many requests wait: try again in a second"
    if isinstance(error, TimeoutError):
        return f"not done in {SECONDS} seconds: {SEND_LESS}, or try again"
    return first_line(error)


class _Stream(StreamingResponse):
    """Ends its lines whatever it ends by."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        lines = cast(AsyncGenerator[Any, None], self.body_iterator)
        # uvicorn cancels it where it ends, and closes the connection.
        with contextlib.suppress(asyncio.CancelledError):
            async with contextlib.aclosing(lines):
                await super().__call__(scope, receive, send)


def app(answers: Answers, token: str | None, hosts: frozenset[str]) -> ASGIApp:
    """The application. token: what `Authorization: Bearer` must have, None: nothing; then the
    request must name one of `hosts`, so that no page of another site reaches this machine.
    """
    made = FastAPI(title="seq2sweep", docs_url=None, redoc_url=None)
    # As ASCII and without NaN, which a stranger's model may have and JSON has not.
    about = json.dumps(json.loads(json.dumps(answers.about()), parse_constant=lambda _: None))
    page = environment().get_template("translate.html").render(token=token is not None)
    for path, kind, work in (
        ("/translate", TranslateRequest, answers.translate),
        ("/stream", StreamRequest, answers.stream),
        ("/attend", AttendRequest, answers.attend),
    ):
        schema = {"application/json": {"schema": kind.model_json_schema()}}
        made.add_api_route(
            path,
            _endpoint(kind, work),
            methods=["POST"],
            summary=(work.__doc__ or "").split(".")[0],
            response_class=Response,
            openapi_extra={"requestBody": {"content": schema, "required": True}},
        )

    @made.get("/", include_in_schema=False)
    async def index() -> HTMLResponse:
        return HTMLResponse(page)

    @made.get("/model")
    async def model() -> Response:
        return Response(about, media_type="application/json")

    @made.get("/health")
    async def health() -> JSONResponse:
        return JSONResponse({"status": "ok"})

    made.add_exception_handler(UserError, lambda _, error: refusal(422, str(error)))
    made.add_exception_handler(FullError, lambda _, error: refusal(429, _said(error)))
    # Such as lack of memory, which one with fewer texts may not meet.
    for error in (TimeoutError, OperationalError):
        made.add_exception_handler(error, lambda _, error: refusal(503, _said(error)))
    made.add_exception_handler(HTTPException, _http_error)
    return Guard(made, token, hosts)


def _endpoint(
    kind: type[BaseModel], work: Callable[[Any], Awaitable[Response]]
) -> Callable[[Request], Awaitable[Response]]:
    async def answer(request: Request) -> Response:
        content_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        if content_type != "application/json":
            return refusal(415, "send JSON, with Content-Type: application/json")
        try:
            body = await request.body()
        except ClientDisconnect:  # or this server has closed the connection
            return refusal(408, "the body did not come")
        try:
            values = json.loads(body)
        except (ValueError, RecursionError):
            return refusal(400, "the body is no JSON")
        if line := _too_much(kind, values):
            return refusal(422, line)
        try:
            asked = kind.model_validate(values)
        except ValidationError as error:
            first = error.errors(include_url=False, include_input=False)[0]
            where = ".".join(str(part) for part in first["loc"]) or "the body"
            return refusal(422, f"{where}: {first['msg']}")
        answered = asyncio.ensure_future(work(asked))
        gone = asyncio.ensure_future(_disconnected(request))
        try:
            await asyncio.wait((answered, gone), return_when=asyncio.FIRST_COMPLETED)
            return answered.result() if answered.done() else refusal(408, "nobody waits")
        except asyncio.CancelledError:  # by uvicorn, which ends, and says so in one line
            return refusal(503, "this server ends: ask again once it is back")
        finally:
            answered.cancel()
            gone.cancel()

    return answer


async def _disconnected(request: Request) -> None:
    """Waits until the client has closed the connection."""
    while (await request.receive())["type"] != "http.disconnect":
        pass


def _too_much(kind: type[BaseModel], values: Any) -> str | None:
    """What is wrong with the values, if they are more than pydantic is to make an error of each."""
    if not isinstance(values, dict):
        return None
    for key in values:
        if key not in kind.model_fields:
            return f"{key[:80]}: unknown key, known are {', '.join(kind.model_fields)}"
    text = values.get("text")
    if isinstance(text, list) and len(text) > MOST_LINES:
        return f"text has {len(text)} lines: send at most {MOST_LINES} at once"
    return None


async def _answer(future: Future[T]) -> T:
    """Raises TimeoutError; what still waits then is not done at all."""
    return await asyncio.wait_for(asyncio.wrap_future(future), SECONDS)


def _shown(one: Translation) -> dict[str, Any]:
    return {"text": one.text, "score": one.score}


def refusal(status: int, line: str) -> JSONResponse:
    """One line, without passwords, of at most 300 characters."""
    line = " ".join(redact(line).split())
    line = line.encode("utf-8", "replace").decode()  # a key may have half a surrogate pair
    return JSONResponse({"error": line if len(line) <= 300 else f"{line[:297]}..."}, status)


async def _http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return refusal(error.status_code, str(error.detail))


class Guard:
    """Lets no request through that names a strange host, has no token, or is too long."""

    def __init__(self, inner: ASGIApp, token: str | None, hosts: frozenset[str]) -> None:
        self.inner, self.token, self.hosts = inner, token, hosts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            if scope["type"] == "lifespan":
                await self.inner(scope, receive, send)
            return
        headers = {key.lower(): value for key, value in scope["headers"]}
        if refused := self._refuses(scope["path"], headers):
            await refused(scope, receive, send)
            return
        seen = 0

        async def counted() -> Message:
            nonlocal seen
            message = await receive()
            seen += len(message.get("body", b""))
            if seen > LARGEST_BODY:
                raise HTTPException(413, f"the body is too long: send at most {LARGEST_BODY} bytes")
            return message

        await self.inner(scope, counted, send)

    def _refuses(self, path: str, headers: Mapping[bytes, bytes]) -> Response | None:
        if self.token is None:
            host = headers.get(b"host", b"").decode("latin-1").lower()
            if host.rpartition(":")[0] not in self.hosts and host not in self.hosts:
                return refusal(403, "this server answers to its own address only")
        elif path not in ("/", "/health"):  # they say nothing
            given = headers.get(b"authorization", b"")
            if not hmac.compare_digest(given, b"Bearer " + self.token.encode()):
                return refusal(401, "send the server's token, as Authorization: Bearer TOKEN")
        return None
