"""Leaves it to the client to try again, and says what is wrong where that does not help."""

import sys

from outrider import Client, InvalidArgumentError, OutriderError


def main(address: str = "localhost:7070") -> None:
    with Client(address, retries=4) as client:
        try:
            result = client.generate("The sea is", max_tokens=64, seed=7).result()
        except InvalidArgumentError as error:
            sys.exit(f"this can never work: {error}")
        except OutriderError as error:
            sys.exit(f"{type(error).__name__}: {error} (request {error.request_id})")
    print(result.text)
    for count in result.resumed_at:
        print(f"tokens that had arrived when the connection broke: {count}")


if __name__ == "__main__":
    main(*sys.argv[1:])
