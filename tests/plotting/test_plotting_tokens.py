"""Tokens are data: every one is shown letter by letter."""

import pytest

from arith_lens import plotting


@pytest.mark.parametrize(
    ("token", "shown"),
    [
        (" 7", "␣7"),
        ("7", "7"),
        ("\n", "↵"),
        ("", '""'),
        ("\u200b", "\\u200b"),
        ("\xa0", "\\xa0"),
        ("▁7", "▁7"),
        ("<s>", "<s>"),
        ("é", "é"),
    ],
)
def test_every_letter_of_a_token_is_seen(token: str, shown: str) -> None:
    assert plotting.visible(token) == shown
