"""Asks again where that can help, and says what is wrong where it cannot."""

import sys
import time

from outrider import CapacityError, Client, OutriderError, Result, UnavailableError

MOST_TRIES = 5


def ask(client: Client, prompt: str) -> Result:
    tries = 0
    while True:
        try:
            return client.generate(prompt, max_tokens=64, seed=7).result()
        except (CapacityError, UnavailableError) as error:
            tries += 1
            if error.retry_after_s is None or tries == MOST_TRIES:
                raise
            time.sleep(error.retry_after_s)


def main(address: str = "localhost:7070") -> None:
    with Client(address) as client:
        try:
            print(ask(client, "The sea is").text)
        except OutriderError as error:
            request = f" (request {error.request_id})" if error.request_id else ""
            sys.exit(f"{type(error).__name__}: {error}{request}")


if __name__ == "__main__":
    main(*sys.argv[1:])
