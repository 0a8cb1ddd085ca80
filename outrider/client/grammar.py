"""What the text must match, out of the three arguments that say it; knows no grammar library."""

import json
from collections.abc import Mapping, Sequence

from outrider.client.arguments import checked_text
from outrider.errors import InvalidArgumentError
from outrider.types import Grammar


def checked_grammar(json_schema: object, regex: object, choice: object) -> Grammar | None:
    """The one that is given; None where none is. What a schema or a regex says is for the server to
    judge.
    """
    forms = {"json_schema": json_schema, "regex": regex, "choice": choice}
    given = [name for name, form in forms.items() if form is not None]
    if len(given) > 1:
        raise InvalidArgumentError(f"{' and '.join(given)} are given; give one of them")
    if json_schema is not None:
        return Grammar(json_schema=_schema_text(json_schema))
    if regex is not None:
        text = checked_text("regex", regex)
        if not text:
            raise InvalidArgumentError("regex is ''; give at least one character, or None")
        return Grammar(regex=text)
    return Grammar(choice=_choice_texts(choice)) if choice is not None else None


def _schema_text(schema: object) -> str:
    if isinstance(schema, Mapping):
        try:
            return json.dumps(dict(schema), allow_nan=False)
        except (TypeError, ValueError, RecursionError) as error:
            raise InvalidArgumentError(f"json_schema is no JSON: {error}") from None
    if not isinstance(schema, str):
        raise InvalidArgumentError(
            f"json_schema is a {type(schema).__name__}; give a mapping, or JSON text"
        )
    text = checked_text("json_schema", schema)
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InvalidArgumentError(f"json_schema is no JSON: {error}") from None
    if not isinstance(value, dict):
        raise InvalidArgumentError("json_schema is no JSON object; give one, like {'type': ...}")
    return text


def _choice_texts(choice: object) -> tuple[str, ...]:
    if isinstance(choice, (str, bytes, bytearray)) or not isinstance(choice, Sequence):
        raise InvalidArgumentError(
            f"choice is a {type(choice).__name__}; give a list of texts, one of which is generated"
        )
    if not choice:
        raise InvalidArgumentError("choice is empty; give at least one text, or None")
    return tuple(checked_text(f"choice[{index}]", text) for index, text in enumerate(choice))
