"""Streams a chat through OpenAI's own client, with one of Outrider's fields beside OpenAI's."""

import sys

from openai import OpenAI


def main(base_url: str = "http://localhost:8000/v1") -> None:
    with OpenAI(base_url=base_url, api_key="none") as client:
        chunks = client.chat.completions.create(
            model=client.models.list().data[0].id,
            messages=[{"role": "user", "content": "Name three rivers."}],
            max_tokens=64,
            seed=7,
            stream=True,
            stream_options={"include_usage": True},
            extra_body={"num_speculative_tokens": 8},
        )
        for chunk in chunks:
            for choice in chunk.choices:
                print(choice.delta.content or "", end="", flush=True)
            if chunk.usage is not None and chunk.usage.completion_tokens_details is not None:
                accepted = chunk.usage.completion_tokens_details.accepted_prediction_tokens
                print(f"\n{accepted} of {chunk.usage.completion_tokens} tokens were drafted")


if __name__ == "__main__":
    main(*sys.argv[1:])
