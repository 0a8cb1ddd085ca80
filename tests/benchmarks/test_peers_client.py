"""Peers are asked as their users ask them, and their counts are read as they mean them."""

import http.server
import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from benchmarks.peers_client import LlamaCppPeer, PeerRequest, TransformersPeer
from outrider.errors import UnavailableError

REQUEST = PeerRequest("hello", 4, 1.0, 7)


class Lines:
    """A process that has its lines ready."""

    module = "peer"

    def __init__(self, *lines: Any) -> None:
        self.lines = [line if isinstance(line, str) else json.dumps(line) for line in lines]
        self.told: list[dict[str, Any]] = []

    def line(self, timeout_s: float) -> str:
        return self.lines.pop(0)

    def tell(self, line: str) -> None:
        self.told.append(json.loads(line))


def test_transformers_says_a_line_for_each_round() -> None:
    process = Lines("ready", {"ids": [1, 2, 3]}, {"ids": [4]}, {"prompt_tokens": 9})
    peer = TransformersPeer(process)  # type: ignore[arg-type]
    peer.wait_ready(1.0)
    got = peer.answer(REQUEST)
    assert (got.ids, got.passes, got.accepted_tokens) == ((1, 2, 3, 4), 2, 2)
    assert got.prompt_tokens == 9
    assert got.at_ms[0] == got.at_ms[2] <= got.at_ms[3]
    assert process.told == [{"text": "hello", "max_tokens": 4, "temperature": 1.0, "seed": 7}]


def test_a_failure_of_transformers_is_told() -> None:
    peer = TransformersPeer(Lines({"error": "RuntimeError: no room"}))  # type: ignore[arg-type]
    with pytest.raises(UnavailableError, match="no room"):
        peer.answer(REQUEST)


class Server(http.server.BaseHTTPRequestHandler):
    """Answers like llama.cpp's server."""

    asked: list[tuple[str, dict[str, Any]]] = []  # noqa: RUF012
    events: list[dict[str, Any]] = []  # noqa: RUF012
    status = 200

    def do_POST(self) -> None:
        size = int(self.headers["Content-Length"])
        self.asked.append((self.path, json.loads(self.rfile.read(size))))
        self.send_response(self.status)
        self.end_headers()
        if self.path == "/apply-template":
            self.wfile.write(b'{"prompt": "<user>hello"}')
        else:
            for event in self.events:
                self.wfile.write(f"data: {json.dumps(event)}\n\n".encode())

    def log_message(self, *arguments: object) -> None:
        pass


@pytest.fixture
def peer() -> Iterator[LlamaCppPeer]:
    server = http.server.HTTPServer(("127.0.0.1", 0), Server)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    Server.asked, Server.events, Server.status = [], [], 200
    made = LlamaCppPeer(Lines(f"http://127.0.0.1:{server.server_port}"))  # type: ignore[arg-type]
    made.wait_ready(1.0)
    yield made
    server.shutdown()
    server.server_close()


def event(*ids: int, **more: Any) -> dict[str, Any]:
    return {"tokens": list(ids), "stop": False, **more}


def test_llamacpp_streams_tokens_and_tells_its_accepted_drafts_at_the_end(
    peer: LlamaCppPeer,
) -> None:
    timings = {"draft_n": 5, "draft_n_accepted": 2}
    end = {"tokens": [], "stop": True, "tokens_evaluated": 9, "timings": timings}
    Server.events = [event(5), event(6), event(7), end]
    got = peer.answer(REQUEST)
    assert (got.ids, got.passes, got.accepted_tokens) == ((5, 6, 7), 1, 2)
    assert (got.prompt_tokens, len(got.at_ms)) == (9, 3)
    (template, _), (path, body) = Server.asked
    assert (template, path) == ("/apply-template", "/completion")
    assert (body["prompt"], body["n_predict"], body["seed"]) == ("<user>hello", 4, 7)
    assert (body["temperature"], body["samplers"]) == (1.0, ["temperature"])


def test_an_answer_of_llamacpp_without_its_end_is_an_error(peer: LlamaCppPeer) -> None:
    Server.events = [event(5)]
    with pytest.raises(UnavailableError, match="without its end"):
        peer.answer(REQUEST)


def test_a_refusal_of_llamacpp_is_told(peer: LlamaCppPeer) -> None:
    Server.status = 400
    with pytest.raises(UnavailableError, match="refused /apply-template: 400"):
        peer.answer(REQUEST)


def test_a_server_that_is_gone_is_told(tmp_path: Path) -> None:
    peer = LlamaCppPeer(Lines("http://127.0.0.1:1"))  # type: ignore[arg-type]
    peer.wait_ready(1.0)
    with pytest.raises(UnavailableError, match="is gone"):
        peer.answer(REQUEST)
