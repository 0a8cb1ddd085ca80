"""Bodies to the engine's requests. Pure.

An unknown field is named, for the log; one that is known elsewhere is refused where its value would
change the answer.
"""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from orchestrator.gateway.bodies import (
    MOST_CHOICES,
    Body,
    ChatBody,
    CompletionBody,
    Generation,
    Message,
)
from orchestrator.requests import GenerationRequest, Prompt
from outrider.errors import InvalidArgumentError, require
from outrider.types import AcceptanceMode, Grammar, SamplingParams, StopConditions

COMPLETION_TOKENS = 16
"""How long OpenAI's completions are where nothing is said."""


def _is_unset(value: object) -> bool:
    return not value


UNSUPPORTED: Mapping[str, Callable[[object], bool]] = {
    **dict.fromkeys(
        (
            *("tools", "functions", "audio", "suffix", "use_beam_search", "bad_words", "echo"),
            *("prompt_logprobs", "truncate_prompt_tokens", "continue_final_message"),
            *("chat_template", "chat_template_kwargs", "documents", "web_search_options"),
            *("return_tokens_as_token_ids", "logits_processors", "vllm_xargs"),
            *(
                "prompt_embeds",
                "typical_p",
                "mirostat",
                "top_a",
                "xtc_probability",
                "dry_multiplier",
            ),
            *("top_n_sigma", "mm_processor_kwargs", "reasoning_effort", "logprob_token_ids"),
            *("guided_json", "guided_regex", "guided_choice", "guided_grammar", "grammar"),
        ),
        _is_unset,
    ),
    "best_of": lambda value: value in (None, 1),
    "tool_choice": lambda value: value in (None, "none", "auto"),
    "function_call": lambda value: value in (None, "none", "auto"),
    "modalities": lambda value: value in (None, ["text"]),
    "length_penalty": lambda value: value in (None, 1),
    **dict.fromkeys(
        ("add_generation_prompt", "add_special_tokens", "skip_special_tokens"),
        lambda value: value in (None, True),
    ),
}
"""Fields that are known elsewhere, and which of their values mean what is done here anyway."""


@dataclass(frozen=True, slots=True)
class Job:
    """The generations that an HTTP request asks for: choice i is the (i % n)-th of prompt i // n.

    With `echoes` the prompt stands before the answer; `has_answer` False: nothing stands behind it.
    """

    prompts: tuple[Prompt, ...]
    n: int
    base: GenerationRequest
    echoes: bool = False
    has_answer: bool = True

    def requests(self) -> list[GenerationRequest]:
        """One for each choice; one alone has the id of the whole."""
        whole = self.base.request_id
        found: list[GenerationRequest] = []
        for prompt in self.prompts:
            for choice in range(self.n):
                name = whole if self.count == 1 else f"{whole}-{len(found)}"
                found.append(
                    replace(self.base, request_id=name, prompt=prompt, choice_index=choice)
                )
        return found

    @property
    def count(self) -> int:
        """Number of choices."""
        return len(self.prompts) * self.n


def unknown_fields(body: Body) -> list[str]:
    """Names of fields that mean nothing here.

    Raises InvalidArgumentError for one that is known elsewhere and asks for what is not done here.
    """
    unknown: list[str] = []
    options = getattr(body, "stream_options", None)
    require(
        options is None or not (options.model_extra or {}).get("continuous_usage_stats"),
        "stream_options.continuous_usage_stats is not supported here; include_usage is",
    )
    for name, value in (body.model_extra or {}).items():
        if name not in UNSUPPORTED:
            unknown.append(name)
        elif not UNSUPPORTED[name](value):
            raise InvalidArgumentError(f"{name} is not supported here; leave it out")
    return unknown


def chat_job(body: ChatBody, request_id: str, default_tokens: int) -> Job:
    """Raises InvalidArgumentError for what no model could answer."""
    require(
        None in (body.max_tokens, body.max_completion_tokens)
        or body.max_tokens == body.max_completion_tokens,
        f"max_tokens is {body.max_tokens} and max_completion_tokens is "
        f"{body.max_completion_tokens}; give one of them",
    )
    require(
        body.top_logprobs is None or bool(body.logprobs),
        "top_logprobs is given without logprobs; set logprobs to true",
    )
    longest = body.max_completion_tokens if body.max_tokens is None else body.max_tokens
    logprobs = (body.top_logprobs or 0) if body.logprobs else None
    prompt = messages_of(body.messages)
    base = _request(body, request_id, prompt, default_tokens if longest is None else longest)
    return Job((prompt,), body.n or 1, replace(base, logprobs=logprobs))


def completion_job(body: CompletionBody, request_id: str) -> Job:
    """Raises InvalidArgumentError for what no model could answer."""
    prompts = prompts_of(body.prompt)
    n, echoes = body.n or 1, bool(body.echo)
    require(
        len(prompts) * n <= MOST_CHOICES,
        f"{len(prompts)} prompts with {n} answers each are {len(prompts) * n}; "
        f"ask for at most {MOST_CHOICES} answers at once",
    )
    require(
        not echoes or body.logprobs is None,
        "echo is given with logprobs; the prompt's log-probabilities are not supported, leave one "
        "of the two out",
    )
    longest = COMPLETION_TOKENS if body.max_tokens is None else body.max_tokens
    has_answer = longest != 0 or not echoes
    base = _request(body, request_id, prompts[0], longest if has_answer else 1)
    return Job(prompts, n, replace(base, logprobs=body.logprobs), echoes, has_answer)


def messages_of(messages: Iterable[Message]) -> tuple[tuple[str, str], ...]:
    """(role, content) of each turn; a developer's are a system's."""

    def text(message: Message) -> str:
        if isinstance(message.content, list):
            return "".join(part.text for part in message.content)
        return message.content or ""

    roles = {"developer": "system"}
    for number, message in enumerate(messages):
        for name in ("tool_calls", "function_call"):
            require(
                not (message.model_extra or {}).get(name),
                f"messages.{number} has {name}; tools are not supported here, leave it out",
            )
    return tuple((roles.get(m.role, m.role), text(m)) for m in messages)


def prompts_of(
    prompt: "str | Sequence[str] | Sequence[int] | Sequence[Sequence[int]]",
) -> tuple[Prompt, ...]:
    """One text, several, the ids of one, or those of several.

    >>> prompts_of("a"), prompts_of([1, 2]), prompts_of([[1], [2]]), prompts_of(["a", "b"])
    (('a',), ((1, 2),), ((1,), (2,)), ('a', 'b'))
    """
    if isinstance(prompt, str):
        found: list[Prompt] = [prompt]
    elif any(isinstance(part, int) for part in prompt):
        found = [tuple(part for part in prompt if isinstance(part, int))]
    else:
        found = [p if isinstance(p, str) else tuple(p) for p in prompt if not isinstance(p, int)]
    require(
        bool(found) and all(found),
        "a prompt is empty; give some text or at least one token id",
    )
    return tuple(found)


def _request(
    body: Generation, request_id: str, prompt: Prompt, max_tokens: int
) -> GenerationRequest:
    stop = (body.stop,) if isinstance(body.stop, str) else tuple(body.stop or ())
    mode = body.acceptance_mode
    return GenerationRequest(
        request_id=request_id,
        prompt=prompt,
        sampling=_sampling(body),
        stop=StopConditions(
            max_tokens=max_tokens,
            stop_token_ids=frozenset(body.stop_token_ids or ()),
            ignore_eos=bool(body.ignore_eos),
            min_tokens=body.min_tokens or 0,
        ),
        max_drafts=body.max_drafts,
        num_speculative_tokens=body.num_speculative_tokens,
        width=body.width,
        mode=None if mode is None else AcceptanceMode("coupled" if mode == "auto" else mode),
        stop_strings=stop,
        include_stop_string=bool(body.include_stop_str_in_output and stop),
    )


def _sampling(body: Generation) -> SamplingParams:
    given = {
        name: value
        for name in (
            *("temperature", "top_p", "min_p", "repetition_penalty"),
            *("frequency_penalty", "presence_penalty"),
        )
        if (value := getattr(body, name)) is not None
    }
    allowed = body.allowed_token_ids
    return SamplingParams(
        **given,
        top_k=0 if body.top_k in (None, -1) else body.top_k,
        seed=_seed(body.seed),
        logit_bias=_bias(body.logit_bias or {}),
        allowed_token_ids=None if allowed is None else frozenset(allowed),
        grammar=_grammar(body),
    )


def _seed(seed: int | None) -> int | None:
    """Of the 64 bits that other servers take with a sign, the same without one."""
    if seed is None:
        return None
    require(-(2**63) <= seed < 2**64, f"seed is {seed}; give a whole number from -2^63 to 2^64 - 1")
    return seed % 2**64


def _bias(given: Mapping[str, float]) -> tuple[tuple[int, float], ...]:
    ids: dict[int, float] = {}
    for name, bias in given.items():
        require(
            name.isascii() and name.isdigit() and len(name) < 10,
            f"logit_bias names the token {name[:40]!r}; give token ids",
        )
        require(int(name) not in ids, f"logit_bias names token {int(name)} twice")
        ids[int(name)] = bias
    return tuple(sorted(ids.items()))


def _grammar(body: Generation) -> Grammar | None:
    wanted, outputs = body.response_format, body.structured_outputs
    if outputs is not None:
        require(
            wanted is None or wanted.type == "text",
            "response_format and structured_outputs are both given; give one of them",
        )
        given = outputs.json_
        return Grammar(
            json_schema=given if isinstance(given, str) else _json(given),
            regex=outputs.regex or "",
            choice=tuple(outputs.choice or ()),
        )
    if wanted is None or wanted.type == "text":
        return None
    if wanted.type == "json_object":
        return Grammar(json_schema='{"type": "object"}')
    schema = None if wanted.json_schema is None else wanted.json_schema.schema_
    require(
        schema is not None,
        "response_format is json_schema without a schema; give response_format.json_schema.schema",
    )
    return Grammar(json_schema=json.dumps(schema))


def _json(schema: object) -> str:
    return "" if schema is None else json.dumps(schema)
