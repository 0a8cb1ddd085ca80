"""A request's options as a user gives them, and what an oracle needs to answer it alone."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from outrider.models.scripted import ScriptedTokenizer
from outrider.sampling.grammar import GrammarCompiler
from outrider.sampling.history import History
from outrider.types import AcceptanceMode, Grammar, SamplingParams

OF_THE_GRAMMAR = ("json_schema", "regex", "choice")
OF_SAMPLING = (
    "temperature",
    "top_k",
    "top_p",
    "min_p",
    "seed",
    "repetition_penalty",
    "frequency_penalty",
    "presence_penalty",
)


def sampling_of(options: Mapping[str, Any]) -> SamplingParams:
    """The sampling parameters that `generate(**options)` sends."""
    known = {name: options[name] for name in OF_SAMPLING if name in options}
    form = {name: options[name] for name in OF_THE_GRAMMAR if name in options}
    if "choice" in form:
        form["choice"] = tuple(form["choice"])
    if "json_schema" in form:
        form["json_schema"] = json.dumps(form["json_schema"])
    allowed = options.get("allowed_token_ids")
    return SamplingParams(
        **known,
        mode=AcceptanceMode(options.get("mode", "coupled")),
        logit_bias=tuple(sorted(options.get("logit_bias", {}).items())),
        allowed_token_ids=None if allowed is None else frozenset(allowed),
        banned_token_ids=frozenset(options.get("banned_token_ids", ())),
        grammar=Grammar(**form) if form else None,
    )


def history_of(
    options: Mapping[str, Any], prompt: Sequence[int], vocab: int, eos: int | None = None
) -> History:
    """The history before the first token, for a scripted target with `vocab` tokens."""
    sampling = sampling_of(options)
    ends = frozenset(options.get("stop_token_ids", ()))
    if eos is not None and not options.get("ignore_eos"):
        ends |= {eos}
    grammar = None
    if sampling.grammar is not None:
        vocabulary = ScriptedTokenizer(vocab, eos).vocabulary
        compiler = GrammarCompiler(vocabulary, () if eos is None else (eos,))
        grammar = compiler.compile(sampling.grammar)
    return History.of(
        sampling,
        prompt,
        ends=ends,
        min_tokens=options.get("min_tokens", 0),
        grammar=grammar,
    )
