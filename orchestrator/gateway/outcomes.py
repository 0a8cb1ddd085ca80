"""What HTTP clients get: OpenAI's shapes with vLLM's additions. They know no engine.

The tokens of one verdict arrive together, so a chunk of a stream has all of them.
"""

from typing import Generic, Literal, TypeVar

from pydantic import BaseModel, ConfigDict

FinishReason = Literal["stop", "length"]


class Shape(BaseModel):
    """Whatever is sent: the fields that were set, null or not."""

    model_config = ConfigDict(frozen=True, protected_namespaces=())


class PromptDetails(Shape):
    """Of the prompt's tokens."""

    cached_tokens: int = 0


class CompletionDetails(Shape):
    """Of the drafted tokens that were verified."""

    accepted_prediction_tokens: int = 0
    rejected_prediction_tokens: int = 0


class Usage(Shape):
    """Tokens of a request, all of its choices together; each prompt is counted once."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    prompt_tokens_details: PromptDetails
    completion_tokens_details: CompletionDetails


class SpeculativeDecoding(Shape):
    """How drafting went, in vLLM's shape: `acceptance_histogram[i]` passes accepted i tokens."""

    mean_acceptance_length: float
    draft_acceptance_rate: float
    acceptance_histogram: list[int]
    num_spec_steps: int
    num_accepted_draft_tokens: int
    num_draft_tokens: int


class Replay(Shape):
    """What only Outrider tells: the seed that repeats the answer, the drafts, what to know."""

    seed: int
    drafts: list[str]
    notices: list[str]


class Metrics(Shape):
    """What was measured of a request."""

    speculative_decoding: SpeculativeDecoding


class Likely(Shape):
    """A token and its log-probability."""

    token: str
    logprob: float
    bytes: list[int]


class ChatLogprob(Likely):
    """With the likeliest ones in its place."""

    top_logprobs: list[Likely]


class ChatLogprobs(Shape):
    """One for each token."""

    content: list[ChatLogprob]


class CompletionLogprobs(Shape):
    """One entry for each token; `text_offset` is where its text starts."""

    tokens: list[str]
    token_logprobs: list[float]
    top_logprobs: list[dict[str, float]]
    text_offset: list[int]


class AnswerMessage(Shape):
    """The answer to a conversation."""

    role: Literal["assistant"] = "assistant"
    content: str
    refusal: None = None


class Delta(Shape):
    """What a chunk adds to it."""

    role: Literal["assistant"] | None = None
    content: str | None = None


class Author(Shape):
    """A token's part of the text, and the draft that wrote it; null: the target did. A token that
    completes no character has no text.
    """

    text: str
    draft: str | None


L = TypeVar("L")
C = TypeVar("C")


class Choice(Shape, Generic[L]):
    """What every choice has. `stop_reason` is the stop text that ended it, or the id of the token
    of `stop_token_ids` that did.
    """

    index: int
    logprobs: L | None = None
    finish_reason: FinishReason | None = None
    stop_reason: int | str | None = None
    token_ids: list[int] | None = None
    token_authors: list[Author] | None = None


class ChatChoice(Choice[ChatLogprobs]):
    """A whole answer."""

    message: AnswerMessage


class ChatDeltaChoice(Choice[ChatLogprobs]):
    """A part of one."""

    delta: Delta


class CompletionChoice(Choice[CompletionLogprobs]):
    """An answer, or a part of one."""

    text: str
    prompt_token_ids: list[int] | None = None


class Whole(Shape, Generic[C]):
    """What every answer and chunk has."""

    id: str
    created: int
    model: str
    choices: list[C]
    system_fingerprint: str
    usage: Usage | None = None
    metrics: Metrics | None = None
    outrider: Replay | None = None
    prompt_token_ids: list[int] | None = None


class Chat(Whole[ChatChoice]):
    """Of /v1/chat/completions."""

    object: Literal["chat.completion"] = "chat.completion"


class ChatChunk(Whole[ChatDeltaChoice]):
    """Of the same as a stream."""

    object: Literal["chat.completion.chunk"] = "chat.completion.chunk"


class Completion(Whole[CompletionChoice]):
    """Of /v1/completions, and its stream's chunks."""

    object: Literal["text_completion"] = "text_completion"


class Model(Shape):
    """A name that the target answers to."""

    id: str
    object: Literal["model"] = "model"
    created: int
    owned_by: str = "outrider"
    root: str
    max_model_len: int


class Models(Shape):
    """Of /v1/models."""

    object: Literal["list"] = "list"
    data: list[Model]


class Tokenized(Shape):
    """Of /tokenize."""

    count: int
    max_model_len: int
    tokens: list[int]
    token_strs: list[str] | None = None


class Detokenized(Shape):
    """Of /detokenize."""

    prompt: str


class Problem(Shape):
    """What went wrong. `param` is the field that it is about."""

    message: str
    type: str
    param: str | None = None
    code: str | None = None


class Failure(Shape):
    """Every error."""

    error: Problem
