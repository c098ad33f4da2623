"""Messages that may be read as JSON lines by pyarrow, told from those that must be looked at one by one."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from millrace.formats.layout import Layout, Mask, texts_of

_BLANKS = " \t\r\n"
_BLANK_BYTES = np.frombuffer(_BLANKS.encode(), np.uint8)
_AFTER_BRACE = np.frombuffer(b'"}' + _BLANKS.encode(), np.uint8)
_NOT_FINITE = (b"NaN", b"Inf")  # pyarrow takes these for numbers, also in fields that nobody asked for
_GLUED = b"}{"  # not needed to be right, only to be quick
_LONG = 800  # bytes: a shorter record cannot be nested so deep that parsers disagree about it
_MANY = 400  # opening brackets


def lines(values: pa.Array) -> tuple[pa.Array, Mask]:
    """Messages as texts without blanks around them, and which of them pyarrow's reader must not see."""
    texts, odd = texts_of(values)
    layout = Layout.of(texts)
    if any(np.isin(edge, _BLANK_BYTES).any() for edge in layout.edges()):
        texts = pc.ascii_trim(texts, _BLANKS)
        layout = Layout.of(texts)
    odd |= _no_objects(layout)
    for word in (*_NOT_FINITE, _GLUED):
        odd[layout.with_word(word)] = True
    for place in np.flatnonzero(layout.lengths > _LONG).tolist():
        text = layout.text(place)
        odd[place] |= text.count(b"[") + text.count(b"{") > _MANY
    return texts, odd


def _no_objects(layout: Layout) -> Mask:
    """Texts that are not `{"…}` or `{}`, as far as their edges show."""
    first, last = layout.edges()
    second, _ = layout.edges(1)
    objects: Mask = (first == ord("{")) & np.isin(second, _AFTER_BRACE) & (last == ord("}")) & (layout.lengths > 1)
    return ~objects
