"""What HTTP clients send: the fields that are used, with their types. Values that no model could
take are refused by the requests that they become (`orchestrator.gateway.reading`).

Knows no engine and no answer.
"""

from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

MOST_CHOICES = 128
"""Answers to one HTTP request, over all of its prompts."""


MOST_MESSAGES = 8192
MOST_TOKENS = 2**20
MOST_RULES = 4096


def _is_text(text: str) -> str:
    """JSON can spell halves of characters, which no tokenizer takes."""
    try:
        text.encode()
    except UnicodeEncodeError:
        raise ValueError("the text has half of a character (a lone surrogate)") from None
    return text


Text = Annotated[str, AfterValidator(_is_text)]
# A list of a million wrong things is wrong with its first one.
Texts = Annotated[list[Text], Field(max_length=MOST_RULES, fail_fast=True)]
Ids = Annotated[list[int], Field(max_length=MOST_TOKENS, fail_fast=True)]
Rules = Annotated[list[int], Field(max_length=MOST_RULES, fail_fast=True)]


class Body(BaseModel):
    """Fields that are not known are kept aside (`model_extra`), not refused: clients send many."""

    model_config = ConfigDict(extra="allow", strict=True, frozen=True, protected_namespaces=())


class StreamOptions(Body):
    """How a stream is told."""

    include_usage: bool | None = Field(None, description="A last chunk with the usage")


class JsonSchema(Body):
    """A schema with a name."""

    name: str | None = None
    schema_: dict[str, object] | bool | None = Field(None, alias="schema")
    strict: bool | None = None


class ResponseFormat(Body):
    """What form the text has."""

    type: Literal["text", "json_object", "json_schema"]
    json_schema: JsonSchema | None = None


class StructuredOutputs(Body):
    """vLLM's word for it; one of the three."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    json_: dict[str, object] | Text | None = Field(None, alias="json")
    regex: Text | None = None
    choice: Texts | None = None


class Generation(Body):
    """What both endpoints take; None means the default."""

    model: Text | None = Field(None, description="A name that /v1/models lists; none: the model")
    temperature: float | None = Field(None, description="From 0, which is greedy; default 1")
    top_p: float | None = Field(None, description="Above 0 and up to 1")
    top_k: int | None = Field(None, description="0 or -1: all tokens")
    min_p: float | None = Field(None, description="From 0 to below 1")
    repetition_penalty: float | None = Field(None, description="From 0.01 to 10")
    presence_penalty: float | None = Field(None, description="-2 to 2")
    frequency_penalty: float | None = Field(None, description="-2 to 2")
    logit_bias: Annotated[dict[str, float], Field(max_length=MOST_RULES)] | None = Field(
        None, description="Token id to -100 .. 100"
    )
    allowed_token_ids: Rules | None = Field(None, description="No other token is emitted")
    seed: int | None = Field(None, description="Repeats an answer; -2^63 to 2^64 - 1")
    n: Annotated[int, Field(ge=1, le=MOST_CHOICES)] | None = Field(
        None, description="Independent answers to each prompt"
    )
    stop: Text | Texts | None = Field(None, description="Texts that end the answer")
    stop_token_ids: Rules | None = Field(None, description="Tokens that end the answer")
    include_stop_str_in_output: bool | None = Field(None, description="Leave the stop text in")
    ignore_eos: bool | None = Field(None, description="Go on behind the end of the text")
    min_tokens: int | None = Field(None, description="Shortest answer")
    stream: bool | None = Field(None, description="Server-sent events")
    stream_options: StreamOptions | None = None
    response_format: ResponseFormat | None = None
    structured_outputs: StructuredOutputs | None = None
    return_token_ids: bool | None = Field(
        None, description="Add prompt_token_ids, and the token_ids of each choice"
    )
    return_token_authors: bool | None = Field(
        None, description="Add the token_authors of each choice: who wrote which part of the text"
    )
    max_drafts: int | None = Field(
        None, description="Drafts that help; 0: none. Changes the speed, never the law of the text"
    )
    num_speculative_tokens: int | None = Field(
        None, description="Most drafted tokens that a target pass verifies"
    )
    width: int | None = Field(None, description="Children that a draft proposes at each node")
    acceptance_mode: Literal["auto", "coupled", "rejection", "block", "match"] | None = Field(
        None, description="How drafted tokens are accepted; all are lossless"
    )


class TextPart(Body):
    """A part of a message."""

    type: Literal["text"]
    text: Text


class Message(Body):
    """A turn of the conversation."""

    role: Literal["system", "developer", "user", "assistant"]
    content: Text | Annotated[list[TextPart], Field(fail_fast=True)] | None = None


Messages = Annotated[list[Message], Field(min_length=1, max_length=MOST_MESSAGES, fail_fast=True)]


class ChatBody(Generation):
    """POST /v1/chat/completions."""

    messages: Messages
    max_tokens: int | None = Field(None, description="Longest answer; see max_completion_tokens")
    max_completion_tokens: int | None = Field(None, description="Longest answer, in tokens")
    logprobs: bool | None = Field(None, description="Report the log-probability of each token")
    top_logprobs: int | None = Field(None, description="And of so many likely ones, up to 20")


class CompletionBody(Generation):
    """POST /v1/completions."""

    prompt: (
        Text
        | Annotated[list[Text], Field(max_length=MOST_CHOICES, fail_fast=True)]
        | Ids
        | Annotated[list[Ids], Field(max_length=MOST_CHOICES, fail_fast=True)]
    )
    max_tokens: int | None = Field(None, description="Longest answer, in tokens; default 16")
    logprobs: int | None = Field(None, description="Report so many likely tokens, up to 20")
    echo: bool | None = Field(None, description="Put the prompt in front of the text")


class TokenizeBody(Body):
    """POST /tokenize: one of the two."""

    model: Text | None = None
    prompt: Text | None = None
    messages: Messages | None = None
    return_token_strs: bool | None = None


class DetokenizeBody(Body):
    """POST /detokenize."""

    model: Text | None = None
    tokens: Ids
