"""The page at `/`, the reference at `/docs`, and what both are made of: the files in `page/`, held
in memory. Knows nothing of what they show.

A browser is told to take nothing from elsewhere and to run no script but theirs, so whatever a
model or a user writes stays text.
"""

import hashlib
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from importlib import resources

from fastapi import APIRouter, Request, Response

FILES = "/page/"
NAMES = {"index.html": "/", "reference.html": "/docs"}
TYPES = {
    "css": "text/css; charset=utf-8",
    "html": "text/html; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml",
}
POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self'",
        "connect-src 'self'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
        "require-trusted-types-for 'script'",
        "trusted-types 'none'",
    )
)
GUARDED = {
    # Asked again each time, and answered with 304: an upgrade is seen at once.
    "Cache-Control": "no-cache",
    "Content-Security-Policy": POLICY,
    "Cross-Origin-Opener-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}


@dataclass(frozen=True, slots=True)
class File:
    """A file as it is sent."""

    body: bytes
    media_type: str
    etag: str

    def response(self, request: Request) -> Response:
        """The file, or that the browser has it."""
        headers = {**GUARDED, "ETag": self.etag}
        known = request.headers.get("if-none-match", "").split(",")
        if self.etag in (name.strip().removeprefix("W/") for name in known):
            return Response(status_code=304, headers=headers)
        return Response(self.body, media_type=self.media_type, headers=headers)


def read_files() -> dict[str, File]:
    """By their paths."""
    folder = resources.files("orchestrator.gateway") / "page"
    found: dict[str, File] = {}
    for entry in folder.iterdir():
        media_type = TYPES.get(entry.name.rpartition(".")[2])
        if media_type is not None:
            body = entry.read_bytes()
            etag = f'"{hashlib.sha256(body).hexdigest()[:32]}"'
            found[NAMES.get(entry.name, FILES + entry.name)] = File(body, media_type, etag)
    return found


def pages(files: Mapping[str, File]) -> APIRouter:
    """A path for each file."""
    router = APIRouter(include_in_schema=False)
    for path, file in files.items():
        router.add_api_route(path, _sender(file), methods=["GET", "HEAD"])
    return router


def _sender(file: File) -> Callable[[Request], Awaitable[Response]]:
    async def send(request: Request) -> Response:
        return file.response(request)

    return send
