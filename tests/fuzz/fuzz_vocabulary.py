"""Vocabularies: any bytes are refused with their line, or are words that are written and encoded as they were read.

The same bytes are also a corpus whose words are counted, and a text that is compared with the vocabulary. An input's first byte
is the size of a shortlist; the rest are lines.
"""

import re
from pathlib import Path

import atheris

with atheris.instrument_imports(include=["phrase_rescore"]):
    from phrase_rescore.data import vocabulary as vocabularies
    from phrase_rescore.data.vocabulary import FIRST_WORD, UNK, Vocabulary, format_vocabulary, most_frequent
    from phrase_rescore.data.vocabulary import read_vocabulary as read
    from phrase_rescore.errors import InputError

from harness import fuzz, told, workplace

SEEDS = [
    b"the\t12\nhouse\t5\n&apos;s\t1\n", "café\t3\nUNK\t2\n</s>\t1\n\u2028\t1\n\u00a0\t0\n".encode() + b"\xff\xfe\t7\n\r\t1\n",
    b"a\t1\na\t2\n", b"a\tb\nThe|DT\t3\nthe|DT house|NN\n", b"word\t999999999999999999\r\nno count\n\n\t\n",
    b"BZh9\t1\n\x1f\x8b\t1",
]  # fmt: skip
TOKENS = (b"\t1\n", b"\t", b"\n", b"\r\n", b" ", b"a", b"999999999999999999", b"\xd9\xa3", b"|", b"&apos;", b"'", b"\0")
OTHER = Vocabulary((b"a",), (1,))


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


def check_text(lines: list[bytes], shortlist: int) -> None:
    counts = vocabularies.count_words(lines)
    assert counts.total() == sum(len(re.findall(rb"[^ \t]+", line.rstrip(b"\r\n"))) for line in lines)
    vocabulary, left_out = most_frequent(counts, shortlist)
    least = min(vocabulary.counts, default=0)
    assert all(n <= least for word, n in counts.items() if word not in vocabulary.ids)
    assert len(vocabulary.words) == min(shortlist, len(counts) - left_out)
    assert left_out < max(1, len(counts))
    share, lacking = vocabularies.known_share(counts, vocabulary, OTHER)
    known = sum(n for word, n in counts.items() if word in vocabulary.ids)
    assert share == (known / counts.total() if counts else 1)
    assert lacking.isprintable(), lacking
    for warning in vocabularies.fit_warnings((counts, counts), (vocabulary, OTHER), (0.0, 0.0)) if counts else ():
        assert warning.isprintable(), warning


def main() -> None:
    path = Path(workplace(), "side.vocab")

    def check(data: bytes) -> None:
        check_file(path, data[1:])
        check_text(data[1:].split(b"\n"), 1 + (data[0] if data else 0))

    fuzz(check, [bytes([size]) + seed for seed in SEEDS for size in (0, 3)], 1024, TOKENS)


if __name__ == "__main__":
    main()
