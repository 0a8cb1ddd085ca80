"""Peers are asked as their users ask them, and their counts are read as they mean them."""

import http.server
import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from benchmarks.peers_client import UNTOLD, LlamaCppPeer, PeerRequest, TransformersPeer
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


def event(emitted: int, *ids: int, drafted: int = 0, accepted: int = 0) -> dict[str, Any]:
    timings = {"predicted_n": emitted}
    if drafted:
        timings |= {"draft_n": drafted, "draft_n_accepted": accepted}
    return {"tokens": list(ids), "stop": False, "timings": timings}


def end(emitted: int, drafted: int, accepted: int) -> dict[str, Any]:
    last = event(emitted, drafted=drafted, accepted=accepted)
    return {**last, "stop": True, "tokens_evaluated": 9}


def test_llamacpp_streams_tokens_and_tells_its_accepted_drafts_at_the_end(
    peer: LlamaCppPeer,
) -> None:
    events = [event(1, 4), *(event(2 + i, 5 + i, drafted=5, accepted=2) for i in range(3))]
    Server.events = [*events, end(4, 5, 2)]
    got = peer.answer(REQUEST)
    assert (got.ids, got.passes, got.accepted_tokens) == ((4, 5, 6, 7), 2, 2)
    assert (got.prompt_tokens, len(got.at_ms)) == (9, 4)
    (template, _), (path, body) = Server.asked
    assert (template, path) == ("/apply-template", "/completion")
    assert (body["prompt"], body["n_predict"], body["seed"]) == ("<user>hello", 4, 7)
    assert (body["temperature"], body["samplers"]) == (1.0, ["temperature"])


def test_tokens_that_llamacpp_does_not_name_count_and_those_cut_off_do_not(
    peer: LlamaCppPeer,
) -> None:
    # Five drafted tokens are accepted; the second and third of the answer end inside a character,
    # and it ends with its fourth.
    Server.events = [event(1, 4), event(4, 7, drafted=5, accepted=5), end(4, 5, 5)]
    got = peer.answer(REQUEST)
    assert (got.ids, got.passes, got.accepted_tokens) == ((4, UNTOLD, UNTOLD, 7), 2, 2)
    assert got.at_ms[0] <= got.at_ms[1] == got.at_ms[3]


def test_a_pass_without_drafts_is_one_of_its_own(peer: LlamaCppPeer) -> None:
    Server.events = [event(1, 4), event(3, 6, drafted=5, accepted=1), end(4, 5, 1)]
    assert peer.answer(REQUEST).passes == 3


def test_an_answer_of_llamacpp_without_its_end_is_an_error(peer: LlamaCppPeer) -> None:
    Server.events = [event(1, 5)]
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
