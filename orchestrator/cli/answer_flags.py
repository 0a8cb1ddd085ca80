"""The flags that say which answer is wanted, declared once for all commands that ask for one."""

import functools
import inspect
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from orchestrator.cli import flags

if TYPE_CHECKING:
    from outrider.client.request import GenerateOptions


def _schema(value: str | None) -> str | None:
    """JSON text as it is; else the content of the file."""
    if value is None or value.lstrip().startswith("{"):
        return value
    try:
        return Path(value).read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        raise typer.BadParameter(
            f"{value!r} is neither JSON text nor a file that can be read ({error})"
        ) from error


def _biases(values: list[str]) -> list[str]:
    tokens = [_bias(value)[0] for value in values]
    for token in tokens:
        if tokens.count(token) > 1:
            raise typer.BadParameter(f"token {token} is given twice; give each token once")
    return values


def _bias(value: str) -> tuple[int, float]:
    token, _, bias = value.partition("=")
    try:
        return int(token), float(bias)
    except ValueError as error:
        raise typer.BadParameter(f"{value!r} is no bias; give ID=BIAS, like 42=-5") from error


Schema = Annotated[
    str | None,
    typer.Option(
        metavar="FILE|JSON", callback=_schema, help="The answer matches this JSON schema."
    ),
]
Bias = Annotated[
    list[str],
    typer.Option(
        metavar="ID=BIAS", callback=_biases, help="Add this to a token's logit; repeatable."
    ),
]


def answer_options(
    max_tokens: flags.MaxTokens = 256,
    min_tokens: flags.MinTokens = 0,
    temperature: flags.Temperature = None,
    top_k: flags.TopK = None,
    top_p: flags.TopP = None,
    min_p: flags.MinP = None,
    repetition_penalty: flags.RepetitionPenalty = None,
    frequency_penalty: flags.FrequencyPenalty = None,
    presence_penalty: flags.PresencePenalty = None,
    logit_bias: Bias = [],  # noqa: B006 - Typer copies it
    allowed_token: flags.AllowedTokens = [],  # noqa: B006 - Typer copies it
    banned_token: flags.BannedTokens = [],  # noqa: B006 - Typer copies it
    json_schema: Schema = None,
    regex: flags.Regex = None,
    choice: flags.Choices = [],  # noqa: B006 - Typer copies it
    stop: flags.Stop = [],  # noqa: B006 - Typer copies it
    include_stop: flags.IncludeStop = False,
    stop_token: flags.StopTokens = [],  # noqa: B006 - Typer copies it
    ignore_eos: flags.IgnoreEos = False,
    seed: flags.Seed = None,
    mode: flags.Mode = None,
    max_drafts: flags.MaxDrafts = None,
    num_speculative_tokens: flags.SpeculativeTokens = None,
    width: flags.Width = None,
    model: flags.Model = "",
    timeout: flags.Timeout = None,
) -> "GenerateOptions":
    """The values of the flags as the options of a client."""
    return {
        "max_tokens": max_tokens,
        "min_tokens": min_tokens,
        "temperature": temperature,
        "top_k": top_k,
        "top_p": top_p,
        "min_p": min_p,
        "repetition_penalty": repetition_penalty,
        "frequency_penalty": frequency_penalty,
        "presence_penalty": presence_penalty,
        "logit_bias": dict(map(_bias, logit_bias)),
        "allowed_token_ids": allowed_token or None,
        "banned_token_ids": banned_token,
        "json_schema": json_schema,
        "regex": regex,
        "choice": choice or None,
        "stop": stop,
        "include_stop": include_stop,
        "stop_token_ids": stop_token,
        "ignore_eos": ignore_eos,
        "seed": seed,
        "mode": mode,
        "max_drafts": max_drafts,
        "num_speculative_tokens": num_speculative_tokens,
        "width": width,
        "model": model,
        "timeout_s": timeout,
    }


def with_answer_flags(command: Callable[..., None]) -> Callable[..., None]:
    """A command that has the flags of `answer_options` besides its own.

    `command` gets their values as its first argument, `options`. Typer reads flags off a signature,
    so the two signatures are joined.
    """
    shared = inspect.signature(answer_options).parameters
    own = list(inspect.signature(command).parameters.values())[1:]

    @functools.wraps(command)
    def run(**values: Any) -> None:
        options = answer_options(**{name: values.pop(name) for name in shared})
        command(options, **values)

    parameters = [*own, *shared.values()]
    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return run
