"""A hub in this process with what its library asks of the real one when it downloads a model."""

import contextlib
import hashlib
import json
import re
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

TIMEOUT_S = 60.0
COMMIT = "0123456789abcdef0123456789abcdef01234567"


class FakeHub:
    """Serves `models`: the files of each repository by name. Counts the bytes that went out."""

    def __init__(self, models: dict[str, dict[str, bytes]]) -> None:
        self.models = models
        self.gated: set[str] = set()
        self.sent_bytes = 0
        self.may_send = threading.Event()
        self.may_send.set()
        self.is_asked = threading.Event()
        hub = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                hub._answer(self)

            do_HEAD = do_GET  # noqa: N815 - the library's name

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.endpoint = f"http://127.0.0.1:{self._server.server_address[1]}"

    def __enter__(self) -> "FakeHub":
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    def _answer(self, request: BaseHTTPRequestHandler) -> None:
        path = request.path.partition("?")[0]
        api = re.fullmatch(r"/api/models/([^/]+/[^/]+)(/revision/\w+|/tree/\w+)?", path)
        file = re.fullmatch(r"/([^/]+/[^/]+)/resolve/\w+/(.+)", path)
        name = api[1] if api else file[1] if file else ""
        if name in self.gated:
            self._send(request, 403, b"{}", {"X-Error-Code": "GatedRepo"})
        elif name not in self.models:
            self._send(request, 401, b"{}", {"X-Error-Code": "RepoNotFound"})
        elif api is not None:
            files = self.models[name]
            if (api[2] or "").startswith("/tree/"):
                shown: object = [
                    {"type": "file", "path": p, "size": len(c), "oid": _etag(c)}
                    for p, c in files.items()
                ]
            else:
                listed = [{"rfilename": p, "size": len(c)} for p, c in files.items()]
                shown = {"id": name, "modelId": name, "sha": COMMIT, "siblings": listed}
            self._send(request, 200, json.dumps(shown).encode(), {})
        else:
            content = self.models[name].get(file[2] if file else "")
            if content is None:
                self._send(request, 404, b"{}", {"X-Error-Code": "EntryNotFound"})
                return
            self._send_file(request, content)

    def _send_file(self, request: BaseHTTPRequestHandler, content: bytes) -> None:
        asked = re.fullmatch(r"bytes=(\d+)-(\d*)", request.headers.get("Range", ""))
        first = int(asked[1]) if asked else 0
        last = int(asked[2]) if asked and asked[2] else len(content) - 1
        headers = {"ETag": f'"{_etag(content)}"', "X-Repo-Commit": COMMIT}
        if asked:
            headers["Content-Range"] = f"bytes {first}-{last}/{len(content)}"
        part = content[first : last + 1]
        if request.command == "GET":
            self.is_asked.set()
            self.may_send.wait(TIMEOUT_S)
        self._send(request, 206 if asked else 200, part, headers)
        if request.command == "GET":
            self.sent_bytes += len(part)

    def _send(
        self, request: BaseHTTPRequestHandler, status: int, body: bytes, headers: dict[str, str]
    ) -> None:
        request.send_response(status)
        for name, value in {"Content-Length": str(len(body)), **headers}.items():
            request.send_header(name, value)
        request.end_headers()
        if request.command == "GET":
            with contextlib.suppress(OSError):  # whoever asked has been ended
                request.wfile.write(body)


def _etag(content: bytes) -> str:
    return hashlib.sha1(content).hexdigest()
