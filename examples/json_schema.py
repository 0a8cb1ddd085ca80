"""Asks for JSON that matches a schema, and reads it."""

import json
import sys

from outrider import Client

SCHEMA = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 40},
        "km": {"type": "integer", "minimum": 1, "maximum": 7000},
    },
    "required": ["name", "km"],
    "additionalProperties": False,
}
QUESTION = "Name a river and its length in km, as JSON."


def main(address: str = "localhost:7070") -> None:
    messages = [{"role": "user", "content": QUESTION}]
    with Client(address) as client:
        result = client.chat(messages, json_schema=SCHEMA, max_tokens=100, seed=7).result()
    river = json.loads(result.text)
    print(f"{river['name']} is {river['km']} km long")


if __name__ == "__main__":
    main(*sys.argv[1:])
