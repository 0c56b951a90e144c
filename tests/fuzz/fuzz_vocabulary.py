"""Vocabularies: any bytes are refused with their line, or are words that are written and encoded as they were read."""

import re
from pathlib import Path

import atheris

with atheris.instrument_imports(include=["phrase_rescore"]):
    from phrase_rescore.data.vocabulary import FIRST_WORD, UNK, format_vocabulary
    from phrase_rescore.data.vocabulary import read_vocabulary as read
    from phrase_rescore.errors import InputError

from harness import fuzz, told, workplace

SEEDS = [
    b"the\t12\nhouse\t5\n&apos;s\t1\n", "café\t3\nUNK\t2\n</s>\t1\n\u2028\t1\n\u00a0\t0\n".encode() + b"\xff\xfe\t7\n\r\t1\n",
    b"a\t1\na\t2\n", b"a\tb\nThe|DT\t3\nthe|DT house|NN\n", b"word\t999999999999999999\r\nno count\n\n\t\n",
    b"BZh9\t1\n\x1f\x8b\t1",
]  # fmt: skip
TOKENS = (b"\t1\n", b"\t", b"\n", b"\r\n", b" ", b"a", b"999999999999999999", b"\xd9\xa3", b"|", b"&apos;", b"'", b"\0")


def check_file(path: Path, data: bytes) -> None:
    path.write_bytes(data)
    try:
        found = read(str(path))
    except InputError as error:
        told(error)
        return
    assert len(set(found.words)) == len(found.words) == len(found.counts) == len(found) - FIRST_WORD
    assert all(word and not re.search(rb"[ \t\n]", word) for word in found.words)
    assert all(count >= 0 for count in found.counts)
    assert found.encode(found.words).tolist() == list(range(FIRST_WORD, len(found)))
    assert found.encode([b"", b"a b"]).tolist() == [UNK, UNK]
    path.write_bytes(format_vocabulary(found))
    assert read(str(path)) == found
    assert list(found.words) == [line.split(b"\t")[0] for line in data.removesuffix(b"\n").split(b"\n") if data]


def main() -> None:
    path = Path(workplace(), "side.vocab")
    fuzz(lambda data: check_file(path, data), SEEDS, 1024, TOKENS)


if __name__ == "__main__":
    main()
