"""JSON and names from elsewhere are taken as they are meant, or refused."""

import json

import pytest

from arith_lens.untrusted import DEEPEST, is_plain_file_name, parse_json


@pytest.mark.parametrize("text", ["3", "null", '"a"', "[]", '{"a": [1, {"b": null}]}', b"[1.5]"])
def test_a_json_text_is_read_as_python_reads_it(text: str | bytes) -> None:
    assert parse_json(text) == json.loads(text)


@pytest.mark.parametrize(("opened", "closed"), [("[", "]"), ('{"a":', "}"), ('[{"a":', "}]")])
def test_lists_and_objects_may_be_nested_to_a_limit(opened: str, closed: str) -> None:
    per_level = opened.count("[") + opened.count("{")

    def nested(levels: int) -> str:
        return opened * (levels // per_level) + "1" + closed * (levels // per_level)

    assert parse_json(nested(DEEPEST)) == json.loads(nested(DEEPEST))
    for levels in (DEEPEST + per_level, 800, 200_000):  # Python's own reader fails at the last one
        with pytest.raises(ValueError, match=f"at most {DEEPEST} levels"):
            parse_json(nested(levels))


@pytest.mark.parametrize("text", ["", "{", "[1,]", "{'a': 1}", b"\xff", "1" * 5000])
def test_what_is_no_json_is_a_value_error(text: str | bytes) -> None:
    with pytest.raises(ValueError):
        parse_json(text)


@pytest.mark.parametrize("name", ["a", "model-00001-of-00002.safetensors", "a b.csv", "ä_1"])
def test_a_plain_file_name_is_one(name: str) -> None:
    assert is_plain_file_name(name)


@pytest.mark.parametrize(
    "name",
    [
        *("", ".", "..", "../x", "a/b", "/a", "a\\b", "C:x", "a\0", "a\nb", ".hidden", "a.", "a "),
        *(3, None, "x" * 256),
    ],
)
def test_what_leads_elsewhere_is_no_plain_file_name(name: object) -> None:
    assert not is_plain_file_name(name)
