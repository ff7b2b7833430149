"""The HTTP answers of a trained model, with limits on all that a stranger may send.

GET /            a page with two boxes and the attention map
POST /translate  {"text": TEXT or a list, "beam", "alpha", "stopping", "n_best"}
                 -> {"translations": of each text the best [{"text", "score"}, ...]}
POST /stream     {"text", "beam", "alpha", "stopping"} -> a line of JSON a part {"text"}, last
                 {"translation"}
POST /attend     {"text", "target"} -> the page of attention maps
GET /model       what is known of the model
GET /health      {"status": "ok"}

What cannot be answered gets a 4xx with {"error": one line}: 400 no JSON, 401 no token, 403 a page
of another site asks, 413 too long, 415 no JSON by its type, 422 wrong values, 429 too many wait.
"""

from __future__ import annotations

import asyncio
import hmac
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from concurrent.futures import Future
from typing import Any, TypeVar

from fastapi import FastAPI, Request
from fastapi.responses import HTMLResponse, JSONResponse, StreamingResponse
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from seq2sweep.config import EvaluateConfig
from seq2sweep.decode.beam import Stopping, Translation
from seq2sweep.decode.streaming import Part
from seq2sweep.errors import UserError
from seq2sweep.evaluate.attention import attention_maps, head_numbers
from seq2sweep.evaluate.attention.attention_maps import Maps
from seq2sweep.evaluate.translator import Translator
from seq2sweep.redaction import redact
from seq2sweep.report.attention import attention_page
from seq2sweep.report.templates import environment
from seq2sweep.serving.batcher import Batcher, FullError

LARGEST_BODY = 2**20
MOST_LINES = 64
"""In one request."""
MOST_TOKENS = 1024
"""In one line, where the model takes that many."""
LARGEST_BATCH = 64
"""Lines that are searched together."""
MOST_WAITING = 4096
"""Lines of all requests that wait."""
SECONDS = 60
"""After which a request that waits is given up."""
LARGEST_BEAM = 16
LONGEST_MAP = 128
"""Tokens of a sentence whose attention is drawn."""


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
        self.batcher = Batcher(self._translate, largest_batch, MOST_WAITING)

    def _translate(self, lines: Any, search: Search) -> list[list[Translation]]:
        n_best, config = search
        return self.translator.translate(lines, n_best, config=config)

    def about(self) -> dict[str, Any]:
        """What GET /model says: how it was trained, is searched with, and scored."""
        data, model = self.translator.settings["data"], self.translator.model
        parameters = sum(parameter.numel() for parameter in model.parameters())
        pair = f"{data['source']} to {data['target']}"
        return {
            "title": f"{pair}, {data.get('dataset', '')}, {parameters / 1e6:.2f}M parameters",
            "source": data["source"],
            "target": data["target"],
            "parameters": parameters,
            "settings": self.translator.settings,
            "about": self.translator.about,
        }

    def search(self, asked: Asked, n_best: int = 1) -> EvaluateConfig:
        """How to search. Raises UserError where that cannot be."""
        changes = asked.model_dump(include={"beam", "alpha", "stopping"}, exclude_none=True)
        return self.translator.searched(n_best, **changes)

    def check(self, lines: list[str]) -> None:
        """Raises UserError for lines that cannot be translated as they are."""
        if len(lines) > MOST_LINES:
            raise UserError(f"text has {len(lines)} lines: send at most {MOST_LINES} at once")
        for number, line in enumerate(lines, start=1):
            try:
                line.encode()
            except UnicodeEncodeError:
                raise UserError(f"text {number} has half a character: send whole ones") from None
            if len(line.splitlines()) > 1:
                raise UserError(f"text {number} has a line break: send each sentence by itself")
        config, model = self.translator.config, self.translator.model
        most = min(MOST_TOKENS, config.max_input_tokens, model.max_length)
        encoded = self.translator.vocabulary.encode(self.translator.clean(lines))
        for number, tokens in enumerate(encoded, start=1):
            if len(tokens) > most:
                raise UserError(f"text {number} has {len(tokens)} tokens: send at most {most}")

    async def translate(self, asked: TranslateRequest) -> Response:
        """POST /translate."""
        lines = [asked.text] if isinstance(asked.text, str) else asked.text
        self.check(lines)
        search = asked.n_best, self.search(asked, asked.n_best)
        found = await _answer(self.batcher.translate(lines, search)) if lines else []
        return JSONResponse({"translations": [[_shown(one) for one in best] for best in found]})

    async def stream(self, asked: StreamRequest) -> Response:
        """POST /stream. Each part is sought in its turn, with other requests between."""
        self.check([asked.text])
        parts = self.translator.stream([asked.text], self.search(asked))

        async def next_part() -> Part | None:
            return await _answer(self.batcher.run(lambda: next(parts, None)))

        async def lines() -> AsyncIterator[str]:
            part = first
            while part is not None:
                said: dict[str, Any] = {"text": part.text}
                if part.translation is not None:
                    said["translation"] = _shown(part.translation)
                yield json.dumps(said, ensure_ascii=False) + "\n"
                try:
                    part = await next_part()
                except (FullError, TimeoutError):
                    yield json.dumps({"error": "too many requests: try again"}) + "\n"
                    return

        first = await next_part()  # what goes wrong at once has a status of its own
        return StreamingResponse(lines(), media_type="application/x-ndjson")

    async def attend(self, asked: AttendRequest) -> Response:
        """POST /attend."""
        self.check([asked.text] if asked.target is None else [asked.text, asked.target])
        return HTMLResponse(await _answer(self.batcher.run(lambda: self._attend(asked))))

    def _attend(self, asked: AttendRequest) -> str:
        targets = [] if asked.target is None else [asked.target]
        pairs = attention_maps.pairs(self.translator, [asked.text], targets)
        longest = max(len(pairs[0].source), len(pairs[0].target))
        if longest > LONGEST_MAP:
            raise UserError(f"{longest} tokens are too many to draw: send at most {LONGEST_MAP}")
        model, vocabulary = self.translator.model, self.translator.vocabulary
        maps: list[Maps] = []
        numbers = head_numbers.measure(model, vocabulary, pairs, on_maps=maps.append)
        if not numbers:
            raise UserError("this model has no attention to show")
        return attention_page.render(maps, numbers, "")


def app(answers: Answers, token: str | None, hosts: frozenset[str]) -> ASGIApp:
    """The application. token: what `Authorization: Bearer` must have, None: nothing; then the
    request must name one of `hosts`, so that no page of another site reaches this machine.
    """
    made = FastAPI(title="seq2sweep", docs_url=None, redoc_url=None)
    about = answers.about()
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
    async def model() -> JSONResponse:
        return JSONResponse(about)

    @made.get("/health")
    async def health() -> JSONResponse:
        return JSONResponse({"status": "ok"})

    made.add_exception_handler(UserError, lambda _, error: refusal(422, str(error)))
    made.add_exception_handler(
        FullError, lambda _, error: refusal(429, "too many requests wait: try again in a second")
    )
    made.add_exception_handler(
        TimeoutError, lambda _, error: refusal(503, f"not done in {SECONDS} seconds: try again")
    )
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
        try:
            asked = kind.model_validate(values)
        except ValidationError as error:
            first = error.errors(include_url=False, include_input=False)[0]
            where = ".".join(str(part) for part in first["loc"]) or "the body"
            known = ", ".join(kind.model_fields)
            unknown = first["type"] == "extra_forbidden"
            return refusal(
                422, f"{where}: " + (f"unknown key, known are {known}" if unknown else first["msg"])
            )
        return await work(asked)

    return answer


async def _answer(future: Future[T]) -> T:
    """Raises TimeoutError; what still waits then is not done at all."""
    return await asyncio.wait_for(asyncio.wrap_future(future), SECONDS)


def _shown(one: Translation) -> dict[str, Any]:
    return {"text": one.text, "score": one.score}


def refusal(status: int, line: str) -> JSONResponse:
    """One line, without passwords, of at most 300 characters."""
    line = " ".join(redact(line).split())
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
