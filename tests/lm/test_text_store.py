import os
from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from phrase_rescore.data.vocabulary import EOS, UNK, Vocabulary
from phrase_rescore.errors import InputError, OptionError
from phrase_rescore.lm.config import Text
from phrase_rescore.lm.prepare import TextSource, prepare_text
from phrase_rescore.messages import Listener
from phrase_rescore.moses.table import words
from phrase_rescore.training.config import Observer

FINGERPRINT = {"inputs": ["text"], "files": [], "options": {}}


def all_words(counts: Counter[bytes]) -> Vocabulary:
    ranked = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    return Vocabulary(tuple(word for word, _ in ranked), tuple(n for _, n in ranked))


def prepared(directory, blocks, held_out=0, share=0.0, vocabulary=all_words, **more):
    blocks = [[words(line.rstrip(b"\r\n")) for line in block] for block in blocks]
    return prepare_text(str(directory), FINGERPRINT, blocks, vocabulary, held_out, share, **more)


def sentences(ids: np.ndarray, vocab: Vocabulary) -> list[bytes]:
    spelt = (b"\n", b"UNK", *vocab.words)
    text = b"".join(b" " + spelt[i] if i != EOS else b"\n" for i in ids)
    return [line[1:] for line in text.split(b"\n")[:-1]]


def test_a_text_is_its_ids_and_an_end_of_every_sentence(tmp_path):
    store = prepared(tmp_path / "text", [[b"a b  a\n", b"\n", b" \t\r\n"], [b"c\tb\r\n", b"\xff\0 a"]])
    assert store.vocab.words == (b"a", b"b", b"c", b"\xff\0")
    assert store.vocab.counts == (3, 2, 1, 1)
    assert store.train.tolist() == [2, 3, 2, 0, 4, 3, 0, 5, 2, 0]
    assert store.held_out.tolist() == []
    assert (store.numbers.sentences, store.numbers.words, store.numbers.empty, store.numbers.unk) == (3, 7, 2, 0.0)
    assert sorted(os.listdir(tmp_path / "text")) == ["held_out.ids.npy", "text.json", "train.ids.npy", "words.vocab"]


def test_words_outside_the_vocabulary_and_marks_of_arpa_files_are_unknown(tmp_path):
    offered = Counter()

    def two(counts):
        offered.update(counts)
        return Vocabulary((b"a", b"b"), (2, 1))

    store = prepared(tmp_path / "text", [[b"a <s> b", b"<unk> a <UNK> c </s>"]], vocabulary=two)
    assert offered == {b"a": 2, b"b": 1, b"c": 1}
    assert store.train.tolist() == [2, UNK, 3, EOS, UNK, 2, UNK, UNK, UNK, EOS]
    assert store.numbers.unk == 5 / 8


@given(st.lists(st.sampled_from([b"a", b"a b", b"b c d", b"e", b"f g", b"h"]), min_size=1, max_size=40), st.data())
def test_equal_sentences_are_held_out_together(tmp_path_factory, lines, data):
    directory = tmp_path_factory.mktemp("text")
    most = data.draw(st.integers(0, 20))
    share = data.draw(st.floats(0, 0.9))
    block = data.draw(st.integers(1, 7))
    try:
        store = prepared(directory / "text", [lines[i : i + block] for i in range(0, len(lines), block)], most, share)
    except OptionError:  # all were held out
        assert int(share * len(lines)) == len(lines)
        return
    learnt, held = (Counter(sentences(ids, store.vocab)) for ids in (store.train, store.held_out))
    assert sum(held.values()) <= min(most, int(share * len(lines)))
    assert not {line for line in learnt if b"UNK" not in line} & {line for line in held if b"UNK" not in line}
    assert sum(learnt.values()) + sum(held.values()) == len(lines)


def test_the_sentences_of_the_smallest_hashes_are_held_out(tmp_path):
    lines = [b"%d x" % i for i in range(1000)]
    few, many = (prepared(tmp_path / str(most), [lines], most, 0.5) for most in (10, 100))
    assert (few.numbers.held_out_sentences, many.numbers.held_out_sentences) == (10, 100)
    known = all_words(Counter(b" ".join(lines).split()))
    few, many = (
        prepared(tmp_path / f"{most}.all", [lines[:300], lines[300:]], most, 0.5, lambda counts: known) for most in (10, 100)
    )
    assert set(sentences(few.held_out, known)) < set(sentences(many.held_out, known))
    assert prepared(tmp_path / "share", [lines], 10**9, 0.02).numbers.held_out_sentences == 20


def test_parts_of_any_size_give_the_same(tmp_path, monkeypatch):
    lines = [b"%d %d x" % (i % 7, i) for i in range(200)]
    whole = prepared(tmp_path / "whole", [lines], 20, 0.1)
    monkeypatch.setattr("phrase_rescore.lm.prepare._IDS", 7)
    parts = prepared(tmp_path / "parts", [[line] for line in lines], 20, 0.1)
    for name in os.listdir(tmp_path / "whole"):
        assert (tmp_path / "whole" / name).read_bytes() == (tmp_path / "parts" / name).read_bytes(), name
    assert whole.numbers == parts.numbers


def test_other_contents_have_other_hashes(tmp_path):
    texts = [[b"a b", b"c"], [b"a b c"], [b"a", b"b c"], [b"b a", b"c"]]
    contents = [prepared(tmp_path / str(i), [text]).numbers.content for i, text in enumerate(texts)]
    assert len(set(contents)) == len(texts)


def test_marks_around_sentences_are_not_learnt(tmp_path):
    said, stores = [], []
    for name, line in (("plain", b"the house %d\n"), ("marked", b"<s> the house %d </s>\n")):
        (tmp_path / name).write_bytes(b"".join(line % n for n in range(100)))
        source = TextSource([str(tmp_path / name)], str(tmp_path / f"lm.{name}"), Text(held_out_share=0.1, min_count=90))
        stores.append(source.make(Observer(), lambda numbers: None))
        source.report(stores[-1], Listener(warn=said.append))
    assert stores[0].numbers == stores[1].numbers
    assert set(stores[0].vocab.words) == {b"the", b"house"}  # that occur 90 times
    assert said == ["<s> and </s> around 100 sentences were left out; the model adds its own"]
    (tmp_path / "odd").write_bytes(b"a\na <s> b\n")
    with pytest.raises(InputError, match="odd:2: '<s>' between words"):
        TextSource([str(tmp_path / "odd")], str(tmp_path / "lm"), Text()).make(Observer(), lambda numbers: None)
