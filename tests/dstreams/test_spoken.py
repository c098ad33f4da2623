"""What went wrong in a program, told with the program's own line."""

from __future__ import annotations

import json

import pytest

from millrace.dstreams.spoken import undecodable
from millrace.errors import Place


def test_a_decoder_is_told_by_its_own_line_though_python_itself_raised() -> None:
    def decode(value: bytes) -> object:
        return json.loads(value)

    with pytest.raises(ValueError, match="Expecting value") as raised:
        decode(b"x")
    told = undecodable("value decoder", "offset 3", raised.value)
    assert str(Place(__file__, decode.__code__.co_firstlineno + 1)) in told.message
