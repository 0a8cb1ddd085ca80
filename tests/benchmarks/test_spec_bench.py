"""Prompts: the first short ones of each category, and what is told where there are none."""

import json
from pathlib import Path

import pytest

from benchmarks import spec_bench
from benchmarks.spec_bench import Prompt, found, read_prompts, spread
from outrider.errors import InvalidArgumentError, NotFoundError


@pytest.fixture
def file(tmp_path: Path) -> Path:
    rows = [("a", "x" * 9), ("b", "x" * 99), ("a", "yy"), ("a", "zz"), ("c", "ww"), ("b", "vv")]
    path = tmp_path / "question.jsonl"
    lines = [json.dumps({"category": c, "turns": [text, "second"]}) for c, text in rows]
    path.write_text("\n".join(lines), encoding="utf-8")
    return path


def test_prompts_are_the_first_short_first_turns_of_each_category(file: Path) -> None:
    assert [p.text for p in read_prompts(file, 2, 60)] == ["x" * 9, "yy", "vv", "ww"]
    assert [p.text for p in read_prompts(file, 1, 5)] == ["yy", "vv", "ww"]


def test_a_limit_takes_them_from_all_over() -> None:
    prompts = [Prompt(letter, letter) for letter in "abcdef"]
    assert [p.text for p in spread(prompts, 3)] == ["a", "c", "f"]
    assert spread(prompts, 1) == prompts[:1]
    assert spread(prompts, 9) == prompts


@pytest.mark.parametrize("line", ["not json", "[]", '{"category": "a"}', '{"turns": ["x"]}'])
def test_another_file_is_refused_with_its_line(file: Path, line: str) -> None:
    file.write_text(file.read_text(encoding="utf-8") + "\n" + line, encoding="utf-8")
    with pytest.raises(InvalidArgumentError, match="line 7 of"):
        read_prompts(file, 1, 60)


def test_no_prompt_that_is_short_enough_is_an_error(file: Path) -> None:
    with pytest.raises(InvalidArgumentError, match="at most 1 characters"):
        read_prompts(file, 1, 1)


def test_a_missing_file_is_told_with_the_way_to_get_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spec_bench, "USUAL_PLACE", tmp_path / "usual.jsonl")
    for path in (None, tmp_path / "given.jsonl"):
        with pytest.raises(NotFoundError, match="give Spec-Bench's question"):
            found(path)
    (tmp_path / "usual.jsonl").touch()
    assert found(None) == tmp_path / "usual.jsonl"
