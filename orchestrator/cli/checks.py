"""The arguments of a request, checked before anything is started or sent."""

from orchestrator.cli.console import misuse_told
from outrider.client.base import BaseClient
from outrider.client.prompt import Prompt
from outrider.client.request import GenerateOptions


class _Unsent(BaseClient[None]):
    """Makes requests as every client does, and drops them."""

    def _send(self, call: object, request: object) -> None:
        pass


def require_valid(prompt: Prompt, options: GenerateOptions) -> None:
    """Ends the command with one line and status 2 where a client would refuse the request."""
    with misuse_told():
        _Unsent().generate(prompt, **options)
