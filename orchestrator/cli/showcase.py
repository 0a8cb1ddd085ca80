"""Which models and which prompt the demonstration shows, and why. Starts nothing."""

import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass

from outrider.models.packaged_gguf import has_llamacpp

GGUF_TARGET, GGUF_DRAFT = "smollm2-f32.gguf", "smollm2.gguf"
HF_TARGET, LOOKUP_DRAFT = "smollm2", "ngram:"

QUESTION = "Why is the sky blue?"
POEM = """\
Repeat this poem word for word:

The outrider rides ahead of the coach,
He looks for the bridge, he looks for the road.
The coachman decides which way they will go,
The outrider saves him the time to know."""
"""Suits prompt lookup: the answer repeats it."""

ABOUT_GGUF = (
    "The draft is SmolLM2-135M in 4 bits, the target the same weights written in 32: a stand-in "
    "for a small and a big model of one family, which agree less often and differ more in speed."
)
ABOUT_POEM = (
    "This prompt suits the draft ngram:, which looks up what followed the last few tokens before; "
    "ask for a story to see a prompt that does not."
)


@dataclass(frozen=True, slots=True)
class Showcase:
    """A target, its drafts and what to ask them.

    `notice` says before the start why it is not the usual pair, `about` behind the answer what a
    reader should know of this one; both may be empty.
    """

    model: str
    drafts: tuple[str, ...]
    prompt: str
    notice: str = ""
    about: str = ""


def chosen(
    model: str | None, drafts: Sequence[str], prompt: str | None, problem: str | None
) -> Showcase:
    """What is shown: what the user names, and for the rest the best pair that runs here.

    `problem` is why llama.cpp does not run here; None where it does.
    """
    is_second_best = model is None and problem is not None
    if model is None:
        model, own = (HF_TARGET, LOOKUP_DRAFT) if is_second_best else (GGUF_TARGET, GGUF_DRAFT)
    else:
        own = LOOKUP_DRAFT
    used = tuple(drafts) or (own,)
    notice = (
        f"{problem}, so this shows {model} with PyTorch and the draft {', '.join(used)}, not the "
        "GGUF pair; README.md says what that needs"
        if is_second_best
        else ""
    )
    looks_up = any(draft.partition(":")[0] == "ngram" for draft in used)
    about = ABOUT_POEM if looks_up and prompt is None else ""
    if (model, used) == (GGUF_TARGET, (GGUF_DRAFT,)):
        about = ABOUT_GGUF
    return Showcase(model, used, prompt or (POEM if looks_up else QUESTION), notice, about)


def llamacpp_problem() -> str | None:
    """Why llama.cpp does not run here, as the beginning of a sentence; None where it does."""
    if not has_llamacpp():
        return "llama.cpp is not installed"
    # Loading it here would keep its libraries in this process, which runs no model.
    loading = subprocess.run(
        [sys.executable, "-c", "import llama_cpp"], capture_output=True, text=True, check=False
    )
    if loading.returncode == 0:
        return None
    reason = (loading.stderr.strip().splitlines() or [f"exit status {loading.returncode}"])[-1]
    return f"llama.cpp cannot be loaded ({reason})"
