"""`outrider chat`: a conversation at the prompt, or line by line from a pipe."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import typer

from orchestrator.cli.checks import require_valid
from orchestrator.cli.console import FAILED, errors_told, misuse_told, say, told, write
from orchestrator.cli.generate import first_token
from orchestrator.cli.prompts import Messages
from orchestrator.cli.summary import answer_line, counted, prompt_line
from outrider.client import Client, Generation, Result
from outrider.client.request import GenerateOptions
from outrider.errors import InvalidArgumentError, OutriderError

if TYPE_CHECKING:
    from prompt_toolkit.key_binding import KeyBindings

HELP = """\
/new              forget the conversation
/seed N           use this seed from now on; without a number: a new one each turn
/temperature T    use this temperature from now on
/stats            what the last answer took
/quit             leave (so does Ctrl-D)
Ctrl-C stops an answer. A line that begins with // is sent with one slash."""


class Chat:
    """The state of a conversation: what was said, and how to sample what comes next."""

    def __init__(self, client: Client, options: GenerateOptions, raw: bool) -> None:
        self._client = client
        self._options = options
        self._raw = raw
        self._messages: Messages = []
        self._last: Result | None = None
        self._told: set[str] = set()
        self.is_over = False

    def take(self, line: str) -> None:
        """A line of the user: a command, or the next turn."""
        if not line.strip():
            return
        if line.startswith("/") and not line.startswith("//"):
            self._command(line)
        else:
            self._turn(line[1:] if line.startswith("//") else line)

    def _turn(self, text: str) -> None:
        messages: Messages = [*self._messages, {"role": "user", "content": text}]
        prompt = text if self._raw else messages
        with self._client.generate(prompt, **self._options) as generation:
            try:
                token = first_token(generation)
                while token is not None:
                    write(token.text)
                    token = next(generation, None)
                self._last = generation.result()
            except KeyboardInterrupt:
                self._last = None
            finally:
                write("\n")
            self._tell(generation)
            self._messages = [*messages, {"role": "assistant", "content": generation.text}]

    def _tell(self, generation: Generation) -> None:
        if self._last is None:
            say(f"stopped after {counted(len(generation.tokens), 'token')}")
        for notice in self._last.notices if self._last else ():
            if notice not in self._told:
                self._told.add(notice)
                say(notice)

    def _command(self, line: str) -> None:
        name, _, value = line[1:].partition(" ")
        commands: dict[str, Callable[[str], None]] = {
            "help": lambda _: typer.echo(HELP, err=True),
            "new": self._forget,
            "seed": self._set_seed,
            "temperature": self._set_temperature,
            "stats": self._show_stats,
            "quit": self._quit,
        }
        if name in commands:
            commands[name](value.strip())
        else:
            raise InvalidArgumentError(f"/{name} is no command; /help lists them")

    def _forget(self, _: str) -> None:
        self._messages = []
        say("a new conversation")

    def _set_seed(self, value: str) -> None:
        if value and not (value.isascii() and value.isdecimal() and int(value) < 2**64):
            raise InvalidArgumentError(f"seed is {value}; give a whole number from 0 to 2^64 - 1")
        self._options["seed"] = int(value) if value else None
        say(f"seed {value}" if value else "a new seed each turn")

    def _set_temperature(self, value: str) -> None:
        try:
            temperature = float(value)
        except ValueError:
            temperature = -1.0
        if not 0 <= temperature < float("inf"):
            raise InvalidArgumentError(f"temperature is {value}; give a number of at least 0")
        self._options["temperature"] = temperature
        say(f"temperature {temperature:g}")

    def _show_stats(self, _: str) -> None:
        if self._last is None:
            say("there is no answer yet")
            return
        say(answer_line(self._last))
        say(prompt_line(self._last))

    def _quit(self, _: str) -> None:
        self.is_over = True


def chat(address: str, *, tls: str, raw: bool, options: GenerateOptions) -> None:
    """Talks until the user leaves. From a pipe, the first error ends it with status 1."""
    require_valid("hello", options)
    is_interactive = sys.stdin.isatty()
    with errors_told():
        with misuse_told():
            client = Client(address, tls=tls)
        with client:
            model = client.get_model_info()
            if is_interactive:
                say(f"talking to {model.model_name}; /help lists the commands")
            conversation = Chat(client, options, raw)
            for line in _typed_lines() if is_interactive else _piped_lines():
                try:
                    conversation.take(line)
                except OutriderError as error:
                    say(told(error))
                    if not is_interactive:
                        raise typer.Exit(FAILED) from error
                if conversation.is_over:
                    return


def _typed_lines() -> Iterator[str]:
    """Lines with editing and a history; Ctrl-C drops the line, Ctrl-D ends."""
    from prompt_toolkit import PromptSession

    session: PromptSession[str] = PromptSession(key_bindings=_late_end())
    with _typing_kept():
        while True:
            try:
                yield session.prompt("> ")
            except KeyboardInterrupt:
                continue
            except EOFError:
                return


def _late_end() -> "KeyBindings":
    """Ends the chat on a Ctrl-D that was typed during an answer.

    The terminal, which keeps whole lines then, has made a null character of it (Linux), which is
    also what Ctrl-@ sends; without a text to select from that does nothing else.
    """
    from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent

    bindings = KeyBindings()

    @bindings.add("c-@")
    def _(event: KeyPressEvent) -> None:
        if not event.current_buffer.text:
            event.app.exit(exception=EOFError)

    return bindings


@contextmanager
def _typing_kept() -> Iterator[None]:
    """Meanwhile, Ctrl-C does not drop what was typed before it."""
    import termios

    before = termios.tcgetattr(sys.stdin)
    kept = termios.tcgetattr(sys.stdin)
    kept[3] |= termios.NOFLSH
    termios.tcsetattr(sys.stdin, termios.TCSANOW, kept)
    try:
        yield
    finally:
        termios.tcsetattr(sys.stdin, termios.TCSANOW, before)


def _piped_lines() -> Iterator[str]:
    for line in sys.stdin:
        yield line.rstrip("\n")
