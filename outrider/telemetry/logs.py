"""Structured logs on standard error: JSON in containers, readable lines on a terminal.

Tokens and prompts are never logged at INFO.
"""

import logging
import sys
from typing import Literal

import structlog

LogFormat = Literal["auto", "json", "text"]
LogLevel = Literal["debug", "info", "warning", "error"]


class _OfLibraries(logging.Handler):
    """Makes lines of ours of what libraries warn of."""

    def emit(self, record: logging.LogRecord) -> None:
        """As the standard library asks for it."""
        get_logger().log(
            min(record.levelno // 10 * 10, logging.CRITICAL),
            "library",
            logger=record.name,
            message=record.getMessage(),
            exc_info=record.exc_info,
        )


_OF_LIBRARIES = _OfLibraries(logging.WARNING)


def configure_logs(service: str, level: LogLevel, log_format: LogFormat) -> None:
    """Sets the process up once; every line carries `service`."""
    is_json = log_format == "json" or (log_format == "auto" and not sys.stderr.isatty())
    renderer: structlog.types.Processor = (
        structlog.processors.JSONRenderer()
        if is_json
        # Not the rich one, which shows variables: prompts, and keys.
        else structlog.dev.ConsoleRenderer(exception_formatter=structlog.dev.plain_traceback)
    )

    def named(
        _logger: object, _method: str, event: structlog.types.EventDict
    ) -> structlog.types.EventDict:
        event["service"] = service
        return event

    processors: list[structlog.types.Processor] = [
        named,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    if is_json:
        processors.append(structlog.processors.format_exc_info)
    structlog.configure(
        processors=[*processors, renderer],
        wrapper_class=structlog.make_filtering_bound_logger(getattr(logging, level.upper())),
        logger_factory=structlog.PrintLoggerFactory(file=sys.stderr),
    )
    logging.getLogger().addHandler(_OF_LIBRARIES)


def get_logger() -> structlog.typing.FilteringBoundLogger:
    """The logger of the process; call it with an event name and key-values."""
    logger: structlog.typing.FilteringBoundLogger = structlog.get_logger()
    return logger
