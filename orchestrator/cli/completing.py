"""What a shell offers for the name of a model: what comes with Outrider, and what is in the cache.

Runs at each press of a key, so it imports little and looks at names of folders only.
"""

import os
from collections.abc import Callable, Iterator
from pathlib import Path

WITHOUT_WEIGHTS = ("ngram:", "scripted:")


def known_models(incomplete: str) -> list[str]:
    """Names of models that begin so; none for a path, which the shell completes by itself."""
    from outrider.models.packaged_gguf import PACKAGED_GGUF
    from outrider.models.packaged_wheels import PACKAGED

    names = (*PACKAGED, *PACKAGED_GGUF, *WITHOUT_WEIGHTS, *_on_hub())
    return [name for name in names if name.startswith(incomplete)]


def _on_hub() -> Iterator[str]:
    """Names of the repositories in the hub's cache, as its folders spell them."""
    home = Path(os.environ.get("HF_HOME") or Path.home() / ".cache" / "huggingface")
    cache = Path(os.environ.get("HF_HUB_CACHE") or home / "hub").expanduser()
    for folder in sorted(cache.glob("models--*")):
        yield folder.name.removeprefix("models--").replace("--", "/")


def service_words(service: str) -> Callable[[str], list[str]]:
    """What may come next on the command line of a service: a flag of its own, or a model."""

    def words(incomplete: str) -> list[str]:
        if not incomplete.startswith("-"):
            return known_models(incomplete)
        from orchestrator.cli.services import KINDS
        from outrider.setting import settings_of

        flags = [flag for setting in settings_of(KINDS[service]).values() for flag in setting.flags]
        return [flag for flag in (*flags, "--config", "--help") if flag.startswith(incomplete)]

    return words
