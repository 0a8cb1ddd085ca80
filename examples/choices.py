"""Asks for four independent answers to one prompt, then for the third one again."""

import sys

from outrider import Client

PROMPT = "Once upon a time"


def main(address: str = "localhost:7070") -> None:
    with Client(address) as client:
        answers = client.generate_choices(PROMPT, 4, max_tokens=32, temperature=0.9, seed=7)
        for index, answer in enumerate(answers):
            print(f"{index}: {answer.text!r}")
        third = client.generate(PROMPT, max_tokens=32, temperature=0.9, seed=7, choice_index=2)
        is_same = third.result().text == answers[2].text
    print(f"number 2 once more: {'the same' if is_same else 'another text'}")


if __name__ == "__main__":
    main(*sys.argv[1:])
