"""Shows an answer while it is written, and how much of it drafts wrote."""

import sys

from outrider import Client


def main(address: str = "localhost:7070") -> None:
    messages = [{"role": "user", "content": "Name three rivers."}]
    with Client(address) as client, client.chat(messages, max_tokens=64, seed=7) as answer:
        for token in answer:
            print(token.text, end="", flush=True)
        result = answer.result()
    drafted = sum(token.is_drafted for token in result.tokens)
    print(f"\n{drafted} of {len(result.tokens)} tokens were drafted; the seed was {result.seed}")


if __name__ == "__main__":
    main(*sys.argv[1:])
