"""transformers' assisted generation on one thread: one peer of the home-lab rig.

    python -m benchmarks.peers_transformers --model FOLDER --draft-model FOLDER
        [--num-speculative-tokens 5]

prints "ready", then answers each line of JSON {text, max_tokens, temperature, seed} on its standard
input with a line {"ids": [...]} for each round and {"prompt_tokens": n} at the end; a failure is a
line {"error": ...}. Ends with its standard input.
"""

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from typing import Any

import torch


class RoundLines:
    """A streamer: writes what each round of `generate` emits, not the prompt."""

    def __init__(self, write: Callable[[dict[str, Any]], None]) -> None:
        self._write = write
        self._has_prompt = False

    def put(self, value: torch.Tensor) -> None:
        """`value` holds the prompt the first time, then the new tokens of a round."""
        if not self._has_prompt:
            self._has_prompt = True
            return
        self._write({"ids": value.flatten().tolist()})

    def end(self) -> None:
        """Nothing to flush."""


def main(arguments: Sequence[str]) -> int:
    """Answers until standard input ends."""
    options = _options(arguments)
    from transformers import AutoModelForCausalLM, AutoTokenizer

    torch.set_num_threads(1)
    tokenizer = AutoTokenizer.from_pretrained(options.model)
    target, assistant = (
        _loaded(AutoModelForCausalLM, folder) for folder in (options.model, options.draft_model)
    )
    assistant.generation_config.num_assistant_tokens = options.num_speculative_tokens
    assistant.generation_config.num_assistant_tokens_schedule = "constant"
    assistant.generation_config.assistant_confidence_threshold = options.confidence
    _write_line("ready")
    for line in sys.stdin:
        try:
            _answer(json.loads(line), tokenizer, target, assistant)
        except (RuntimeError, ValueError, KeyError) as error:
            _write({"error": f"{type(error).__name__}: {error}"})
    return 0


def _loaded(kind: Any, folder: str) -> Any:
    return kind.from_pretrained(folder, dtype=torch.float32).eval()


def _answer(request: dict[str, Any], tokenizer: Any, target: Any, assistant: Any) -> None:
    encoded = tokenizer.apply_chat_template(
        [{"role": "user", "content": request["text"]}],
        add_generation_prompt=True,
        return_tensors="pt",
        return_dict=True,
    )
    sampling: dict[str, Any] = {"do_sample": False}
    if request["temperature"]:
        sampling = {
            "do_sample": True,
            "temperature": request["temperature"],
            "top_k": 0,
            "top_p": 1.0,
        }
    torch.manual_seed(request["seed"])
    with torch.inference_mode():
        target.generate(
            **encoded,
            **sampling,
            max_new_tokens=request["max_tokens"],
            assistant_model=assistant,
            streamer=RoundLines(_write),
        )
    _write({"prompt_tokens": int(encoded["input_ids"].shape[1])})


def _options(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.peers_transformers")
    parser.add_argument("--model", required=True, help="folder of the target")
    parser.add_argument("--draft-model", required=True, help="folder of the assistant")
    parser.add_argument("--num-speculative-tokens", type=int, default=5)
    parser.add_argument(
        "--confidence", type=float, default=0.4, help="drafts end below this probability"
    )
    return parser.parse_args(arguments)


def _write(message: dict[str, Any]) -> None:
    _write_line(json.dumps(message))


def _write_line(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
