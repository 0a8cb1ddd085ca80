"""A grammar allows exactly the tokens that keep the text a prefix of a match, at every node."""

import json
from concurrent.futures import ThreadPoolExecutor
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from models.tiny import byte_level_tokenizer, metaspace_tokenizer

from outrider.errors import InvalidArgumentError
from outrider.models.hf_tokenizer import read_vocabulary
from outrider.models.scripted import ScriptedTokenizer
from outrider.sampling.grammar import GrammarCompiler, GrammarState
from outrider.sampling.schema import MAX_CONJOINED
from outrider.types import Grammar
from outrider.vocabulary import Vocabulary

from .worlds import examples

END = 256
BYTES = Vocabulary(
    (*(bytes([byte]) for byte in range(256)), b"</s>", b"ab", b"abc", b"", b"<pad>"),
    (*(False for _ in range(256)), True, False, False, False, True),
)
WIDTH = len(BYTES)
BYTE_COMPILER = GrammarCompiler(BYTES, [END])
PERSON = json.dumps(
    {
        "type": "object",
        "properties": {"name": {"type": "string"}, "age": {"type": "integer", "minimum": 0}},
        "required": ["name", "age"],
        "additionalProperties": False,
    }
)


def compiled(**grammar: object) -> GrammarState:
    return BYTE_COMPILER.compile(Grammar(**grammar))  # type: ignore[arg-type]


def after(state: GrammarState, text: str | bytes) -> GrammarState:
    return state.after_all(tuple(text.encode() if isinstance(text, str) else text))


def allowed(state: GrammarState, ends: tuple[int, ...] = (END,), width: int = WIDTH) -> set[int]:
    return set(state.allowed(width, ends).nonzero().flatten().tolist())


def tokens(vocabulary: Vocabulary, text: str) -> list[int]:
    """`text` in the shortest pieces that the vocabulary has."""
    piece_ids = {piece: i for i, piece in reversed(list(enumerate(vocabulary.pieces)))}
    return [piece_ids[bytes([byte])] for byte in text.encode()]


@pytest.mark.parametrize(
    ("grammar", "good", "bad"),
    [
        ({"regex": "[a-c]{2}x?"}, ["ab", "ccx"], ["a", "abxx", "dd", ""]),
        ({"regex": "a/b\\d"}, ["a/b7"], ["a/b", "a/bx"]),
        ({"regex": "^abc$"}, ["abc"], ["^abc$", "ab"]),
        ({"regex": "é+"}, ["é", "éé"], ["e", ""]),
        ({"regex": "(ab)?"}, ["", "ab"], ["a"]),
        ({"json_schema": PERSON}, ['{"name":"x","age":3}', '{"name": "", "age": 0}'], ["{}", "[]"]),
        ({"json_schema": '{"const": null}'}, ["null"], ["nul", "true"]),
        ({"json_schema": '{"enum": ["a", 1]}'}, ['"a"', "1"], ["a", "2"]),
        ({"json_schema": "{}"}, ["3", "[]", '"é"', '{"a":[1,{}]}'], ["", "[1,]"]),
        ({"choice": ("yes", "no")}, ["yes", "no"], ["y", "maybe", "yesno"]),
    ],
)
def test_exactly_the_matching_texts_may_end(
    grammar: dict[str, object], good: list[str], bad: list[str]
) -> None:
    state = compiled(**grammar)
    for text in good:
        reached = state
        for byte in text.encode():
            assert byte in allowed(reached), text
            reached = reached.after(byte)
        assert END in allowed(reached), text
    for text in bad:
        assert END not in allowed(after(state, text)), text


CHOICES = (
    'say "a"',
    "line\nbreak",
    "tab\t",
    "é€😀",
    "a",
    "ab",
    "abc",
    "\x00\x7f",
    "x\\y/z",
    "[^",
    " ",
)


@pytest.mark.parametrize("choice", CHOICES)
def test_every_choice_can_be_written_and_ended(choice: str) -> None:
    state = after(compiled(choice=CHOICES), choice)
    assert END in allowed(state)


def test_a_choice_that_begins_another_one_may_end_or_go_on() -> None:
    state = after(compiled(choice=("a", "ab", "abx")), "ab")
    assert allowed(state) == {END, ord("x")}
    assert not state.is_finished
    assert state.after(ord("x")).is_finished


def test_thousands_of_choices_can_be_followed() -> None:
    state = compiled(choice=tuple(f"option {i}" for i in range(4096)))
    assert END in allowed(after(state, "option 4095"))
    assert not after(state, "option 9999").is_accepting


def test_forced_text_may_be_written_in_any_pieces() -> None:
    assert allowed(compiled(choice=("abc",))) == {ord("a"), 257, 258}


def test_a_character_may_be_written_byte_by_byte() -> None:
    first, second = "é".encode()
    state = compiled(regex="é")
    assert allowed(state) == {first}
    assert allowed(state.after(first)) == {second}
    assert not state.after(first).is_accepting


def test_what_needs_a_character_does_not_end_in_the_middle_of_one() -> None:
    state = after(compiled(regex=".*"), b"a" + "é".encode()[:1])
    assert END not in allowed(state)
    assert ord("a") not in allowed(state)


def test_every_end_of_the_request_is_allowed_where_the_text_may_end_and_nowhere_else() -> None:
    compiler = GrammarCompiler(BYTES, [END, 260])
    state = compiler.compile(Grammar(regex="ab*"))
    assert allowed(state, (END, 260)) == {ord("a"), 257}
    assert allowed(after(state, "a"), (END, 260)) == {ord("b"), END, 260}
    assert allowed(after(state, "a"), (260,)) == {ord("b"), 260}


def test_without_end_tokens_a_complete_text_is_finished_and_nothing_follows() -> None:
    state = after(compiled(regex="ab"), "ab")
    assert state.is_finished
    assert allowed(state, ()) == set()


def test_an_end_token_with_bytes_of_its_own_stays_text() -> None:
    """A stop token of the request is written out, so it has to fit the grammar."""
    state = compiled(regex="ab?")
    assert allowed(state, (ord("a"),)) == {ord("a"), 257}
    assert allowed(state.after(ord("a")), (ord("x"), END)) == {ord("b"), END}


def test_an_end_token_of_the_model_is_never_text_even_with_bytes() -> None:
    compiler = GrammarCompiler(BYTES, [ord("a")])
    state = compiler.compile(Grammar(regex="a?b?"))
    assert allowed(state, ()) == {ord("b"), 257}
    assert allowed(state, (ord("a"),)) == {ord("a"), ord("b"), 257}
    assert allowed(state.after(ord("a")), (ord("a"),)) == set()


def test_a_model_without_end_tokens_keeps_all_its_ids_as_text() -> None:
    vocabulary = ScriptedTokenizer(16, None).vocabulary
    state = GrammarCompiler(vocabulary, []).compile(Grammar(regex="[a-c]+"))
    assert allowed(state, (), width=16) == {0, 1, 2}


def test_tokens_without_bytes_never_follow() -> None:
    everything = allowed(compiled(regex="(.|\n)*"), ())
    assert not everything & {END, 259, 260}


@pytest.mark.parametrize("width", [WIDTH - 1, WIDTH, WIDTH + 40, 5])
def test_a_row_may_be_wider_or_narrower_than_the_vocabulary(width: int) -> None:
    state = after(compiled(regex="[a-z]*"), "ab")
    mask = state.allowed(width, (END, WIDTH + 7))
    assert mask.shape == (width,)
    expected = {*range(ord("a"), ord("z") + 1), END, 257, 258, WIDTH + 7}
    assert set(mask.nonzero().flatten().tolist()) == {i for i in expected if i < width}


def test_after_an_illegal_token_nothing_is_allowed_and_the_text_is_not_complete() -> None:
    state = compiled(regex="ab*")
    for broken in (state.after(ord("x")), state.after(END), state.after(10**6), state.after(-1)):
        assert allowed(broken) == set()
        assert allowed(broken.after(ord("a"))) == set()
        assert not broken.is_accepting
        assert not broken.is_finished
    assert allowed(state) == {ord("a"), 257}


@pytest.mark.parametrize("make", [byte_level_tokenizer, metaspace_tokenizer])
def test_real_kinds_of_tokenizer_write_json(make: object) -> None:
    tokenizer = make()  # type: ignore[operator]
    vocabulary = read_vocabulary(tokenizer)
    end = tokenizer.eos_token_id
    state = GrammarCompiler(vocabulary, [end]).compile(Grammar(json_schema=PERSON))
    text = '{"name": "the é", "age": 12}'
    for token in tokens(vocabulary, text):
        mask = state.allowed(len(vocabulary) + 3, (end,))
        assert bool(mask[token])
        assert not bool(mask[end])
        state = state.after(token)
    assert bool(state.allowed(len(vocabulary), (end,))[end])
    assert state.is_finished


def test_masks_of_merged_pieces_agree_with_their_bytes() -> None:
    vocabulary = read_vocabulary(byte_level_tokenizer())
    end = 1
    compiler = GrammarCompiler(vocabulary, [end])
    state = compiler.compile(Grammar(regex="the cat|the mat"))
    for prefix in ("", "t", "the", "the ", "the c"):
        reached = state.after_all(tokens(vocabulary, prefix))
        mask = reached.allowed(len(vocabulary), ())
        for token in range(len(vocabulary)):
            longer = prefix.encode() + vocabulary.piece(token)
            fits = any(text.startswith(longer) for text in (b"the cat", b"the mat"))
            assert bool(mask[token]) == (fits and vocabulary.piece(token) != b""), (prefix, token)


PATHS = st.lists(st.tuples(st.integers(0, 7), st.sampled_from([*b'{}[]",:a1 x', 257])), max_size=12)


@given(PATHS, st.sampled_from(["{}", PERSON, ""]))
@examples(60)
def test_branches_of_a_tree_do_not_disturb_one_another(
    steps: list[tuple[int, int]], schema: str
) -> None:
    root = compiled(json_schema=schema) if schema else compiled(regex="([a-x1]*,)*")
    nodes: list[tuple[tuple[int, ...], GrammarState]] = [((), root)]
    for parent, token in steps:
        path, state = nodes[parent % len(nodes)]
        nodes.append(((*path, token), state.after(token)))
        allowed(state)
    for path, state in nodes:
        fresh = compiled(json_schema=schema) if schema else compiled(regex="([a-x1]*,)*")
        fresh = fresh.after_all(path)
        assert allowed(state) == allowed(fresh)
        assert state.is_accepting == fresh.is_accepting
        assert state.is_finished == fresh.is_finished


def test_json_never_takes_two_blanks_between_its_parts() -> None:
    state = compiled(json_schema=PERSON)
    assert ord(" ") not in allowed(after(state, "{ "))
    assert ord("\n") not in allowed(after(state, "{\n    "))
    assert ord(" ") not in allowed(after(state, "{\n" + 32 * " "))
    assert END in allowed(after(state, '{\n  "name": "x",\n  "age": 1\n}'))


@pytest.mark.parametrize(
    ("grammar", "reason"),
    [
        ({"json_schema": "{bad"}, "no JSON"),
        ({"json_schema": "[" * 100_000}, "give at most|no JSON"),
        ({"json_schema": "[" * 60_000}, "no JSON"),
        ({"json_schema": "[1]"}, "give a JSON object"),
        ({"json_schema": "true"}, "give a JSON object"),
        ({"json_schema": '{"type": "nope"}'}, "Invalid type: nope"),
        ({"json_schema": '{"uniqueItems": true, "type": "array"}'}, "uniqueItems"),
        ({"json_schema": '{"type": "integer", "minimum": 5, "maximum": 2}'}, "Unsatisfiable"),
        ({"json_schema": '{"allOf": [{"type": "null"}, {"type": "string"}]}'}, "incompatible"),
        ({"json_schema": '{"$ref": "#/nowhere"}'}, "does not exist"),
        ({"json_schema": '{"$ref": "#"}'}, "too deeply"),
        ({"json_schema": '{"$ref": "http://localhost/x"}'}, "not present"),
        ({"json_schema": '{"enum": ["\\ud800"]}'}, "escape"),
        ({"json_schema": '{"x-guidance": {"lenient": true}}'}, "x-guidance"),
        ({"json_schema": '{"title": "' + 70_000 * "x" + '"}'}, "70013 bytes; give at most 65536"),
        ({"json_schema": '{"pattern": "' + 9_000 * "x" + '"}'}, "give at most 8192"),
        ({"regex": "("}, "unclosed group"),
        ({"regex": "(?=a)b"}, "look-around"),
        ({"regex": 9_000 * "a"}, "give at most 8192"),
        ({"regex": 2_000 * "(" + "a" + 2_000 * ")"}, "invalid regex"),
        ({"choice": ("a" * 70_000,)}, "give at most 65536"),
    ],
)
def test_a_grammar_that_cannot_be_used_is_refused_with_the_reason(
    grammar: dict[str, object], reason: str
) -> None:
    with pytest.raises(InvalidArgumentError, match=reason) as refusal:
        compiled(**grammar)
    assert refusal.value.message.startswith("the grammar cannot be used: ")
    assert len(refusal.value.message) < 600
    assert "\n" not in refusal.value.message


def test_what_the_vocabulary_cannot_begin_is_refused() -> None:
    vocabulary = ScriptedTokenizer(16, None).vocabulary
    with pytest.raises(InvalidArgumentError, match="no token of the model's vocabulary"):
        GrammarCompiler(vocabulary, []).compile(Grammar(regex="!a"))


def test_what_the_vocabulary_cannot_finish_leaves_nothing_and_is_not_complete() -> None:
    vocabulary = ScriptedTokenizer(16, None).vocabulary
    state = GrammarCompiler(vocabulary, []).compile(Grammar(regex="a!"))
    stuck = state.after(0)
    assert allowed(stuck, (), width=16) == set()
    assert not stuck.is_finished
    assert stuck.problem == ""


def _conjoined(count: int, how: str) -> str:
    schemas: list[dict[str, object]] = [{"pattern": f"a.*{i}"} for i in range(count)]
    if how == "allOf":
        return json.dumps({"type": "string", "allOf": schemas})
    if how == "properties":
        return json.dumps({"allOf": [{"properties": {"x": schema}} for schema in schemas]})
    if how == "$ref":
        names = {str(i): {**s, "$ref": f"#/$defs/{i + 1}"} for i, s in enumerate(schemas)}
        return json.dumps({"$defs": {**names, str(count): {}}, "$ref": "#/$defs/0"})
    nested: dict[str, object] = {}
    for schema in schemas:
        nested = {**schema, "anyOf": [nested, {"type": "string"}]}
    return json.dumps(nested)


@pytest.mark.parametrize("how", ["allOf", "properties", "$ref", "anyOf"])
def test_patterns_that_would_take_the_machine_down_together_are_refused(how: str) -> None:
    with pytest.raises(InvalidArgumentError, match=f"at most {MAX_CONJOINED} meet"):
        compiled(json_schema=_conjoined(60, how))


def test_references_without_an_end_are_refused() -> None:
    chain = {str(i): {"$ref": f"#/$defs/{i + 1}"} for i in range(1500)}
    with pytest.raises(InvalidArgumentError, match="too deeply"):
        compiled(json_schema=json.dumps({"$defs": {**chain, "1500": {}}, "$ref": "#/$defs/0"}))


def test_many_patterns_that_do_not_meet_are_taken() -> None:
    places = {f"p{i}": {"type": "string", "pattern": f"^x{i}$"} for i in range(40)}
    schema = {
        "$defs": {"node": {"properties": places, "items": {"$ref": "#/$defs/node"}}},
        "allOf": [{"$ref": "#/$defs/node"}, {"type": ["object", "array"]}],
    }
    assert ord("{") in allowed(compiled(json_schema=json.dumps(schema)))


def _too_wide() -> GrammarState:
    """600 optional properties: more than the parser holds at once, which shows after the brace."""
    places = {f"p{i}": {"type": "string"} for i in range(600)}
    return compiled(json_schema=json.dumps({"type": "object", "properties": places}))


def test_a_limit_that_is_hit_on_the_way_is_a_problem_and_not_an_end() -> None:
    state = _too_wide()
    assert state.problem == ""
    broken = state.after(ord("{"))
    assert "max is 2000" in broken.problem
    assert "\n" not in broken.problem
    assert allowed(broken) == set()
    assert not broken.is_finished
    assert not broken.is_accepting
    assert state.problem == ""
    assert allowed(state) == {ord("{")}


def test_a_limit_that_is_hit_by_a_mask_is_a_problem_and_not_an_end() -> None:
    state = compiled(regex="(.*a.{14}b|.*b.{13}a)*")
    random = Random(1)
    for _ in range(5_000):
        allowed(state)
        if state.problem:
            break
        state = state.after(random.choice(b"ab"))
    assert "lexer error" in state.problem
    assert allowed(state) == set()
    assert not state.is_finished


def test_repetitions_of_repetitions_cost_nothing_until_they_are_reached() -> None:
    state = compiled(regex="((a{1000}){1000}){1000}")
    assert allowed(after(state, 500 * "a")) == {ord("a")}


def test_threads_may_share_a_compiler_and_nothing_is_printed(
    capfd: pytest.CaptureFixture[str],
) -> None:
    def use(number: int) -> set[int]:
        wide = f'{{"type": "object", "properties": {{"k{number}": {{"uniqueItems": 1}}}}}}'
        with pytest.raises(InvalidArgumentError):
            compiled(json_schema=wide)
        return allowed(after(compiled(regex=f"x{number}a"), f"x{number}"), ())

    with ThreadPoolExecutor(8) as pool:
        assert (
            list(pool.map(use, range(40)))
            == [
                {
                    ord("a"),
                }
            ]
            * 40
        )
    assert capfd.readouterr() == ("", "")
