"""The HTTP application: its paths, and how errors are told."""

from typing import cast

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware

from orchestrator.gateway.bodies import ChatBody, CompletionBody
from orchestrator.gateway.endpoints import HEALTH, Desk, routes
from orchestrator.gateway.failing import answered, misread, refused
from orchestrator.gateway.guard import Guard, response_of
from orchestrator.gateway.keys import Keys
from orchestrator.gateway.pages import pages, read_files
from orchestrator.gateway.reading import UNSUPPORTED
from orchestrator.gateway.settings import GatewaySettings
from orchestrator.gateway.tracing import Traced
from orchestrator.gateway.watching import watching
from outrider.errors import InternalError, OutriderError
from outrider.request_ids import REQUEST_ID
from outrider.telemetry.logs import get_logger
from outrider.version import __version__

OPEN_PATHS = frozenset({HEALTH, "/openapi.json"})
"""Asked for by what has no key: load balancers, and browsers that only look; so are the pages. They
tell no secret.
"""

FIELDS = {*ChatBody.model_fields, *CompletionBody.model_fields, *UNSUPPORTED}


def make_app(desk: Desk, settings: GatewaySettings) -> FastAPI:
    """Raises InvalidArgumentError where the keys cannot be read."""
    app = FastAPI(
        title="Outrider",
        version=__version__,
        description="The text has exactly the target's distribution; drafts only make it faster.",
        # The pages have a reference that loads nothing from elsewhere.
        docs_url=None,
        redoc_url=None,
    )
    files = read_files()
    app.include_router(routes(desk))
    app.include_router(watching(desk.front))
    app.include_router(pages(files))
    app.add_exception_handler(OutriderError, _tell)
    app.add_exception_handler(RequestValidationError, _tell_misread)
    app.add_exception_handler(HTTPException, _tell_http)
    app.add_middleware(Traced)
    keys = Keys((key.get_secret_value() for key in settings.api_key), settings.api_key_file)
    app.add_middleware(
        Guard,
        keys=keys,
        max_body_bytes=settings.max_body_bytes,
        open_paths=OPEN_PATHS | files.keys(),
    )
    if settings.cors_origin:
        # Outside the guard: a browser asks for leave without a key.
        app.add_middleware(
            CORSMiddleware,
            allow_origins=settings.cors_origin,
            allow_methods=["GET", "POST"],
            allow_headers=["*"],
            expose_headers=[REQUEST_ID, "Retry-After"],
        )
    return app


async def _tell(request: Request, error: Exception) -> Response:
    problem = cast("OutriderError", error)
    if isinstance(problem, InternalError):
        get_logger().error("internal_error", request_id=_id(request), problem=problem.message)
    return response_of(answered(problem, FIELDS))


async def _tell_misread(request: Request, error: Exception) -> Response:
    return response_of(misread(cast("RequestValidationError", error).errors()))


async def _tell_http(request: Request, error: Exception) -> Response:
    problem = cast("HTTPException", error)
    path = f"{request.method} {request.url.path}"
    message = {
        404: f"{path}: there is no such path; /docs lists those there are",
        405: f"{path}: the path takes another method; /docs says which",
    }.get(problem.status_code, problem.detail)
    code = "request_too_large" if problem.status_code == 413 else None
    return response_of(refused(problem.status_code, message, code=code, headers=problem.headers))


def _id(request: Request) -> str:
    return str(getattr(request.state, "request_id", ""))
