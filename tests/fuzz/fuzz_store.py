"""Prepared pairs: whatever the files are, none are found, or arrays that belong together and can be drawn from.

An input is pairs.json, the vocabularies and the arrays. Most mutations get the right sizes of files in pairs.json again, so
that they are opened. Ids are not looked at when a store is
opened, which may be larger than memory, so an id beyond a vocabulary is not a failure here.
"""

import json
import os
import random
import struct
from collections import Counter

import atheris

with atheris.instrument_imports(include=["phrase_rescore"]):
    from phrase_rescore.data.pair_store import LAYOUT, SOURCE_VOCAB, TARGET_VOCAB, prepare_store
    from phrase_rescore.data.sorting import sorted_pairs
    from phrase_rescore.data.vocabulary import Vocabulary, most_frequent
    from phrase_rescore.errors import RescoreError
    from phrase_rescore.moses.pairs import PairBlock

import numpy as np
from harness import fuzz_files, joined, mutate_json, told, workplace

FINGERPRINT = {"inputs": [["/x", 1, 2]], "files": [None], "options": {"shortlist": 5}}
ARRAYS = [
    f"{part}.{side}.{array}.npy" for part in ("train", "held_out") for side in ("src", "tgt") for array in ("ids", "offsets")
]
FILES = (LAYOUT.summary, SOURCE_VOCAB, TARGET_VOCAB, *ARRAYS)
HEADERS = (
    (b"<i4", b"<i8"), (b"<i8", b"<i4"), (b"<i4", b">i4"), (b"<i8", b"|O "), (b"<i4", b"<f4"), (b"False", b"True "),
    (b",)", b",1"), (b"shape", b"shapf"), (b"NUMPY\x01", b"NUMPY\x02"), (b"v\0", b"\xff\xff"),
)  # fmt: skip


def prepared(directory: str, sources: int, held_out: int) -> bytes:
    """An input that is a whole store."""
    src = sorted(b"s%d x" % i for i in range(sources))
    block = PairBlock(src, [b"t%d" % (i % 9) for i in range(sources)])

    def shortlists(src: Counter[bytes], tgt: Counter[bytes]) -> tuple[Vocabulary, Vocabulary]:
        return most_frequent(src, 5)[0], most_frequent(tgt, 5)[0]

    with sorted_pairs([block], os.path.dirname(directory), "", 100_000, 1) as pairs:
        prepare_store(directory, FINGERPRINT, pairs, shortlists, held_out)
    return joined(directory, FILES)


def mutate_array(data: bytes, chance: random.Random) -> bytes:
    """Another header, another number, or another length."""
    how = chance.randrange(3)
    if how == 0:
        return data.replace(*chance.choice(HEADERS), 1)
    if how == 1:
        at = len(data) - 4 * chance.randrange(1, max(2, (len(data) - 128) // 4))
        return data[:at] + struct.pack("<i", chance.choice((-1, 0, 1, 7, 2**31 - 1, -(2**31)))) + data[at + 4 :]
    size = b"%d" % chance.choice((0, 1, 2, 5, 10**9, 10**18, 10**30))
    return data.replace(data.partition(b"(")[2].partition(b",")[0], size, 1) if chance.random() < 0.7 else data[:-4]


def mend(given: list[bytes]) -> None:
    """The sizes of the files."""
    summary = json.loads(given[0])
    summary["files"] = {name: len(data) for name, data in zip(FILES[1:], given[1:], strict=True)}
    given[0] = json.dumps(summary).encode()


def check_store(directory: str) -> None:
    try:
        store = LAYOUT.open(directory, FINGERPRINT)
    except RescoreError as error:
        told(error)
        return
    if store is None:
        return
    numbers = store.numbers
    for pairs, n in ((store.train, numbers.training), (store.held_out, numbers.held_out)):
        assert len(pairs.src) == len(pairs.tgt) == n
        for side in (pairs.src, pairs.tgt):
            assert (side.ids.dtype, side.offsets.dtype, side.ids.ndim, side.offsets.ndim) == (np.int32, np.int64, 1, 1)
            assert side.offsets[0] == 0
            assert side.offsets[-1] == len(side.ids)
        if n and all((side.lengths > 0).all() for side in (pairs.src, pairs.tgt)):
            assert len(pairs.take(np.array([0, n - 1], np.int64))) == 2
    assert f"{numbers.source_unk:.1%} {numbers.target_unk:.1%} {numbers.training + numbers.held_out:,}".isprintable()
    for vocabulary in (store.src_vocab, store.tgt_vocab):
        assert len(set(vocabulary.words)) == len(vocabulary.words)
    LAYOUT.check_target(directory)


def main() -> None:
    home = workplace()
    folder = os.path.join(home, "model.pairs")
    seeds = [prepared(os.path.join(home, f"seed{held_out}"), n, held_out) for n, held_out in ((400, 5), (8, 0))]
    changes = [(0, mutate_json)] * 4 + [(number, mutate_array) for number in range(3, len(FILES))]
    fuzz_files(folder, FILES, lambda: check_store(folder), seeds, 65_536, changes, mend, memory=256 << 20)


if __name__ == "__main__":
    main()
