"""llama.cpp's own in-process speculation, through xllamacpp's server: one peer of the rig.

    python -m benchmarks.peers_llamacpp --model F.gguf --draft-model F.gguf
        [--num-speculative-tokens 5]

prints the server's address as one line and ends with its standard input. One thread; target and
draft take turns on it; with 0 speculative tokens there is no draft. `probabilistic` makes llama.cpp
sample its drafts and accept them by rejection; without it a draft's likeliest token only counts
where the target happens to draw it, and at temperature 1 that is rare.
"""

import argparse
import os
import sys
from collections.abc import Sequence


def main(arguments: Sequence[str]) -> int:
    """Serves until standard input ends."""
    options = _options(arguments)
    import xllamacpp

    params = xllamacpp.CommonParams()
    params.model.path = options.model
    params.n_ctx = options.context_tokens
    params.n_parallel = 1
    params.fit_params = False
    params.port = 0
    params.cache_ram_mib = 0
    draft = params.speculative.draft
    if options.num_speculative_tokens:
        params.speculative.types = [
            xllamacpp.common_speculative_type.COMMON_SPECULATIVE_TYPE_DRAFT_SIMPLE
        ]
        draft.mparams.path = options.draft_model
    draft.n_max = options.num_speculative_tokens
    draft.n_min = 0
    draft.p_min = options.p_min
    draft.probabilistic = True
    for threads in (
        *(params.cpuparams, params.cpuparams_batch),
        *(draft.cpuparams, draft.cpuparams_batch),
    ):
        threads.n_threads = 1
    server = xllamacpp.Server(params)
    sys.stdout.write(f"{server.listening_address}\n")
    sys.stdout.flush()
    sys.stdin.read()
    # Its threads have no end of their own to wait for.
    os._exit(0)


def _options(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.peers_llamacpp")
    parser.add_argument("--model", required=True, help="GGUF file of the target")
    parser.add_argument("--draft-model", required=True, help="GGUF file of the draft")
    parser.add_argument("--num-speculative-tokens", type=int, default=5)
    parser.add_argument("--context-tokens", type=int, default=4096)
    parser.add_argument(
        "--p-min", type=float, default=0.0, help="drafts end below this probability"
    )
    return parser.parse_args(arguments)


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
