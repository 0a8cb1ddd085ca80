"""Shows how sure the target was of each token, and what else it might have said."""

import math
import sys

from outrider import Client


def shown(piece: bytes, logprob: float) -> str:
    return f"{piece.decode(errors='replace')!r} {math.exp(logprob):.0%}"


def main(address: str = "localhost:7070") -> None:
    with Client(address) as client:
        asked = client.generate("The capital of France is", max_tokens=5, temperature=0, logprobs=3)
        result = asked.result()
    for token in result.tokens:
        assert token.logprob is not None, "logprobs were asked for"
        others = ", ".join(shown(other.piece, other.logprob) for other in token.top_logprobs)
        print(f"{shown(token.piece, token.logprob)}; likeliest: {others}")


if __name__ == "__main__":
    main(*sys.argv[1:])
