"""Rows of phrase tables with other scores."""

from phrase_rescore.moses.table import cut_after_scores


def with_scores(fields: list[bytes], drop: int, append: bytes) -> bytes:
    """Join a row without its last ``drop`` scores and with ``append``, which brings its leading blank, after them."""
    head, tail = cut_after_scores(fields)
    return head.rsplit(None, drop)[0] + append + tail
