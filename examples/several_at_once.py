"""Asks three questions at once over one connection, and shows the tokens of all as they come."""

import asyncio
import sys

from outrider import AsyncClient

QUESTIONS = ("Name a river.", "Name a lake.", "Name a sea.")


async def ask(client: AsyncClient, question: str) -> str:
    messages = [{"role": "user", "content": question}]
    async with client.chat(messages, max_tokens=32, seed=7) as answer:
        async for token in answer:
            print(f"{question} {token.text!r}")
        return answer.text


async def main(address: str = "localhost:7070") -> None:
    async with AsyncClient(address) as client:
        texts = await asyncio.gather(*(ask(client, question) for question in QUESTIONS))
    for question, text in zip(QUESTIONS, texts, strict=True):
        print(f"{question} {text}")


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
