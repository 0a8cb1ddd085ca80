"""How the home-lab rig asks its peers, which run in processes of their own. Knows no model."""

import http.client
import json
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol
from urllib.parse import urlsplit

from benchmarks.pinned import LineProcess
from outrider.errors import InternalError, UnavailableError

ANSWER_TIMEOUT_S = 600.0
UNTOLD = -1
"""Stands for a token that a peer emitted and did not name."""


@dataclass(frozen=True, slots=True)
class PeerRequest:
    """One user message; `max_tokens` tokens at most; plain sampling at `temperature`."""

    text: str
    max_tokens: int
    temperature: float
    seed: int


@dataclass(frozen=True, slots=True)
class PeerAnswer:
    """Its tokens, when this process had each (milliseconds from asking), and what drafts did."""

    ids: tuple[int, ...]
    at_ms: tuple[float, ...]
    passes: int
    accepted_tokens: int
    prompt_tokens: int


class Peer(Protocol):
    """Another way to decode speculatively."""

    has_prompt_cache: bool
    """Whether a prompt that was asked before costs nothing any more."""

    def wait_ready(self, timeout_s: float) -> None:
        """Returns once it answers; raises UnavailableError where it does not in time."""
        ...

    def answer(self, request: PeerRequest) -> PeerAnswer:
        """Asks and waits for the whole answer."""
        ...


class TransformersPeer:
    """benchmarks.peers_transformers: a line of JSON there, a line for each round back."""

    has_prompt_cache = False

    def __init__(self, process: LineProcess) -> None:
        self._process = process

    def wait_ready(self, timeout_s: float) -> None:
        """Returns once both models are loaded."""
        said = self._process.line(timeout_s)
        if said != "ready":
            raise InternalError(f"{self._process.module} said {said!r} instead of ready")

    def answer(self, request: PeerRequest) -> PeerAnswer:
        """Every round's tokens, as they come."""
        began_s = time.perf_counter()
        self._process.tell(
            json.dumps(
                {
                    "text": request.text,
                    "max_tokens": request.max_tokens,
                    "temperature": request.temperature,
                    "seed": request.seed,
                }
            )
        )
        ids: list[int] = []
        at_ms: list[float] = []
        rounds = 0
        while True:
            said = json.loads(self._process.line(ANSWER_TIMEOUT_S))
            now_ms = 1000 * (time.perf_counter() - began_s)
            if "error" in said:
                raise UnavailableError(f"{self._process.module} failed: {said['error']}")
            if "prompt_tokens" in said:
                return PeerAnswer(
                    tuple(ids), tuple(at_ms), rounds, len(ids) - rounds, said["prompt_tokens"]
                )
            rounds += 1
            ids += said["ids"]
            at_ms += [now_ms] * len(said["ids"])


class LlamaCppPeer:
    """benchmarks.peers_llamacpp: llama.cpp's own server, asked over HTTP as its users ask it."""

    has_prompt_cache = True

    def __init__(self, process: LineProcess) -> None:
        self._process = process
        self._host = ""
        self._port = 0

    def wait_ready(self, timeout_s: float) -> None:
        """Returns once both models are loaded and the server listens."""
        address = urlsplit(self._process.line(timeout_s))
        if address.hostname is None or address.port is None:
            raise InternalError(f"{self._process.module} told no address")
        self._host, self._port = address.hostname, address.port

    def answer(self, request: PeerRequest) -> PeerAnswer:
        """Its stream of events, one a token."""
        messages = [{"role": "user", "content": request.text}]
        prompt = self._ask("/apply-template", {"messages": messages})["prompt"]
        body = {
            "prompt": prompt,
            "n_predict": request.max_tokens,
            "temperature": request.temperature,
            "seed": request.seed,
            # Nothing but the temperature: its defaults would cut the distribution.
            "samplers": ["temperature"],
            "stream": True,
            "return_tokens": True,
            # An event has no token that ends inside a character; the counts have them all.
            "timings_per_token": True,
            "cache_prompt": True,
        }
        ids: list[int] = []
        at_ms: list[float] = []
        counts: list[dict[str, Any]] = []
        connection = self._connection()
        try:
            began_s = time.perf_counter()
            for line in self._posted(connection, "/completion", body):
                if not line.startswith(b"data: "):
                    continue
                now_ms = 1000 * (time.perf_counter() - began_s)
                event = json.loads(line[len(b"data: ") :])
                if "error" in event:
                    raise UnavailableError(f"llama.cpp's server failed: {event['error']}")
                counts.append(event["timings"])
                emitted = int(event["timings"]["predicted_n"])
                named = event["tokens"]
                ids += [UNTOLD] * (emitted - len(ids) - len(named)) + named
                at_ms += [now_ms] * (len(ids) - len(at_ms))
                if event["stop"]:
                    passes = _passes(counts)
                    return PeerAnswer(
                        tuple(ids),
                        tuple(at_ms),
                        passes,
                        len(ids) - passes,
                        int(event["tokens_evaluated"]),
                    )
        except (OSError, http.client.HTTPException) as error:
            raise UnavailableError(f"llama.cpp's server is gone: {error}") from error
        finally:
            connection.close()
        raise UnavailableError("llama.cpp's server ended its answer without its end")

    def _ask(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        connection = self._connection()
        try:
            answer: dict[str, Any] = json.loads(self._posted(connection, path, body).read())
        except (OSError, http.client.HTTPException) as error:
            raise UnavailableError(f"llama.cpp's server is gone: {error}") from error
        finally:
            connection.close()
        return answer

    def _connection(self) -> http.client.HTTPConnection:
        return http.client.HTTPConnection(self._host, self._port, timeout=ANSWER_TIMEOUT_S)

    def _posted(
        self, connection: http.client.HTTPConnection, path: str, body: dict[str, Any]
    ) -> http.client.HTTPResponse:
        connection.request("POST", path, json.dumps(body), {"Content-Type": "application/json"})
        response = connection.getresponse()
        if response.status != http.HTTPStatus.OK:
            raise UnavailableError(
                f"llama.cpp's server refused {path}: {response.status} {response.read()[:500]!r}"
            )
        return response


def _passes(counts: Sequence[dict[str, Any]]) -> int:
    """Target passes behind the counts of an answer's events, in their order.

    A pass that drafts raises `draft_n` and emits what it accepts and one token more, or less where
    the answer ends inside it: what it accepted beyond that counts there, and was never emitted.
    """
    last_of = {int(count.get("draft_n", 0)): count for count in counts}
    passes = emitted = accepted = 0
    for count in last_of.values():
        now_emitted, now_accepted = count["predicted_n"], count.get("draft_n_accepted", 0)
        passes += max(1, (now_emitted - emitted) - (now_accepted - accepted))
        emitted, accepted = now_emitted, now_accepted
    return passes
