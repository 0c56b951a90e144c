"""ARPA files as KenLM reads them, its rules of back-off, and a network mixed with the n-gram model."""

import math
import random
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from conftest import Run
from small_models import language_model, small_lm

from phrase_rescore.errors import InputError
from phrase_rescore.lm.arpa import UNKNOWN, ArpaReader, BackoffModel, Ngram
from phrase_rescore.lm.mixture import fit_mixture
from phrase_rescore.lm.scorer import NgramScorer
from phrase_rescore.moses.text import END, START

KNOWN = (b"a", b"b", b".", b"the")  # the network knows "house", too, which the file lacks
OUTSIDE = (b"zebra", b"yak")
WORDS = (*KNOWN, *OUTSIDE, END, UNKNOWN)


def p(table: dict[tuple[bytes, ...], Ngram], words: Sequence[bytes]) -> float:
    """p(last | others) by the definition of back-off."""
    if found := table.get(tuple(words)):
        return 10.0**found.log10_p
    context = table.get(tuple(words[:-1]))
    return (10.0**context.log10_backoff if context else 1.0) * p(table, words[1:])


def a_model(order: int, seed: int) -> list[list[Ngram]]:
    """N-grams of each order with any probabilities and back-off weights; some are left out."""
    rng = random.Random(seed)
    orders = [[Ngram((word,), -rng.uniform(0.5, 1.5), -rng.random() / 2) for word in (*WORDS, START)]]
    for n in range(2, order + 1):
        contexts = [of.words for of in orders[-1] if of.words[-1] not in (END, UNKNOWN) and START not in of.words[1:]]
        found = [(*context, word) for context in contexts for word in WORDS if word != UNKNOWN and rng.random() < 0.4]
        orders.append([Ngram(words, -rng.uniform(0.2, 1.5), 0.0 if n == order else -rng.random() / 2) for words in found])
    return orders


def as_file(orders: list[list[Ngram]]) -> bytes:
    lines = ["\\data\\", *(f"ngram {n}={len(of)}" for n, of in enumerate(orders, 1))]
    for n, of in enumerate(orders, 1):
        lines += ["", f"\\{n}-grams:"]
        ends = [f"\t{ngram.log10_backoff:.9g}" if n < len(orders) else "" for ngram in of]
        lines += [f"{it.log10_p:.9g}\t{b' '.join(it.words).decode()}{end}" for it, end in zip(of, ends, strict=True)]
    return "\n".join([*lines, "", "\\end\\", ""]).encode()


def reader(data: bytes) -> ArpaReader:
    return ArpaReader(data.splitlines(keepends=True), "lm.arpa")


def table_of(data: bytes) -> dict[tuple[bytes, ...], Ngram]:
    return {ngram.words: ngram for arpa in [reader(data)] for ngram in (*arpa.unigrams.values(), *arpa.ngrams())}


def test_sentences_by_back_off() -> None:
    data = as_file(a_model(3, 5))
    table = table_of(data)
    sentences = [[b"a", b"b", b"unseen", b"a"], [], [b"zebra", b".", b"the", b"a", b"b"]]
    model = BackoffModel(reader(data), sentences)
    for sentence in sentences:
        words = [START, *(word if word in WORDS else UNKNOWN for word in sentence), END]
        expected = [math.log10(p(table, words[max(0, i - 2) : i + 1])) for i in range(1, len(words))]
        assert model.log10_probs(sentence) == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize(("change", "found"), [
    (lambda d: b"", "the file ends before"),
    (lambda d: d.replace(b"ngram 1=9", b"ngram 1=" + b"9" * 20), "'ngram 1=9*' where 'ngram 1=' should be"),
    (lambda d: d.replace(b"ngram 1=9", b"ngram 1=" + b"9" * 15), "the section ends after 9 of 999,.* 1-grams"),
    (lambda d: b"hello\n", "'hello' where .data. should be"),
    (lambda d: d[: len(d) // 2], "is not a [123]-gram|the file ends before"),
    (lambda d: d.replace(b"ngram 2=", b"ngram 5="), "'ngram 5=.*' where 'ngram 2=' should be"),
    (lambda d: d.replace(b"\\2-grams:", b"\\3-grams:", 1), "where .2-grams: should be"),
    (lambda d: d.replace(b"\\end\\", b"\\fin\\"), "where .end. should be"),
    (lambda d: d.replace(b"\tzebra\t", b"\tzebra x\t", 1), "is not a 1-gram"),
    (lambda d: d.replace(b"\\1-grams:\n", b"\\1-grams:\n0.5\tq\t0\n"), ":6: positive log probability 0.5 of 'q'"),
    (lambda d: d.replace(b"\\1-grams:\n", b"\\1-grams:\nnan\tq\t0\n"), "is not a 1-gram"),
    (lambda d: d.replace(b"\\1-grams:\n", b"\\1-grams:\n-1_0\tq\t0\n"), "is not a 1-gram"),
    (lambda d: d.replace(b"\\1-grams:\n", b"\\1-grams:\n-1\tq\t400\n"), "back-off 400 of 'q'"),
    (lambda d: d.replace(b"\\1-grams:\n", b"\\1-grams:\n-1\tq\t-inf\n"), "back-off -inf of 'q'"),
    (lambda d: d.replace(b"\\1-grams:\n", b"\\1-grams:\n-1 q\t0\n"), "is not a 1-gram"),
    (lambda d: d.replace(b"\\1-grams:\n", b"\\1-grams:\n-1\tq\t0\n"), "where .2-grams: should be, after 9 1-grams"),
    (lambda d: d.replace(b"\t</s>\t", b"\t</t>\t", 1), "no </s> among the unigrams"),
    (lambda d: d.replace(b"<s>", b"<S>"), "no <s> among the unigrams"),
    (lambda d: d.replace(b"\tzebra\t", b"\tzebu\t", 1), "'zebra' of the 2-gram is not among the unigrams"),
    (lambda d: d.replace(b"zebra the\n", b"zebra the\t-0.5\n"), "back-off -0.5 of 'zebra the'"),
    (lambda d: d + b"\\data\\\n", "'.data.' after .end."),
    (lambda d: b"iARPA\n\n" + d, "a file of IRSTLM that is not ARPA; .*compile-lm --text=yes lm.arpa lm.arpa.arpa"),
])  # fmt: skip
def test_what_is_no_arpa_file(change, found: str) -> None:
    data = change(as_file(a_model(2, 7)))
    with pytest.raises(InputError, match=found):
        table_of(data)


def test_the_command(run: Run, tmp_path: Path) -> None:
    lm = small_lm(tmp_path / "lm")
    (tmp_path / "lm.arpa").write_bytes(as_file(a_model(3, 3)))
    text = b"a b zebra . the\nthe unseen house b\n\n"
    mixed = run("score-lm", "-", "-m", lm, "--interpolate", tmp_path / "lm.arpa", stdin=text)
    assert mixed.status == 0, mixed.err
    sentences = [line.split() for line in text.splitlines()]
    model = BackoffModel(reader((tmp_path / "lm.arpa").read_bytes()), sentences)
    log10 = [x for sentence in sentences for x in model.log10_probs(sentence)]
    assert f"n-gram model: perplexity {10 ** -np.mean(log10):.6g} including OOVs" in mixed.err


def test_marks_within_a_text_are_unknown_words() -> None:
    data = as_file(a_model(3, 5))
    of = {}
    for word in (b"unseen", START, END, UNKNOWN):
        model = BackoffModel(reader(data), [[b"a", word, b"b"]])
        of[word] = model.log10_probs([b"a", word, b"b"])
        assert not model.has(word)
    assert len(set(map(tuple, of.values()))) == 1


@pytest.mark.parametrize("change", [
    lambda d: d.replace(b"\n\n\\", b"\n\\").replace(b"\\1-", b"\n\\1-"),  # SRILM's change-lm-vocab and IRSTLM
    lambda d: d.replace(b"\n\n", b"\n \t\n\n").replace(b"\n-1.2", b"\n\n-1.2") + b"\n \n",
    lambda d: (b"\n# made by hand\n" + d)[:-1],
    lambda d: d.replace(b"ngram 1=", b"ngram  1=   +").replace(b"ngram 2=", b"ngram 02=0"),
    lambda d: d.replace(b"\n", b"\r\n"), lambda d: d.replace(b" the\n", b" the\r\n"),
    lambda d: d.replace(b"\tzebra", b"\t \tzebra").replace(b"zebra the\n", b"zebra \tthe\n"),
    lambda d: d.replace(b"\n-", b"\n  -").replace(b"zebra the\n", b"zebra the\t-0.0 \n"),
    lambda d: d.replace(b"<unk>", b"<UNK>"),
    lambda d: d.replace(b"1=9", b"1=11").replace(b"1-grams:\n", b"1-grams:\n-3\t<UNK>\t-1\n").replace(
        b"\n\n\\2", b"\n-3\tzebra\t0\n\n\\2"),  # lmplz on a text with <UNK> in
    lambda d: d.replace(b"2=19", b"2=29").replace(b"\n\n\\e", b"\n-3\tzebra the" * 10 + b"\n\n\\e"),
])  # fmt: skip
def test_what_kenlm_reads(change) -> None:
    data = as_file(a_model(2, 7))
    changed = change(data)
    assert changed != data
    assert b"zebra the\n" in data
    sentences = [[b"a", b"b", b"unseen", b"zebra", b"the", b"a"]]
    models = [BackoffModel(reader(d), sentences) for d in (data, changed)]
    assert models[0].log10_probs(sentences[0]) == models[1].log10_probs(sentences[0])


def test_words_that_are_never_predicted_or_unknown_are_as_kenlm_scores_them() -> None:
    data = b"\\data\\\nngram 1=3\n\n\\1-grams:\n-inf\t<s>\n-0.5\t</s>\n-inf\ta\n\n\\end\\\n"
    assert BackoffModel(reader(data), []).log10_probs([b"a", b"unseen"]) == [-math.inf, -100.0, -0.5]


def test_an_n_gram_after_words_that_are_none() -> None:
    orders = a_model(3, 3)
    context = orders[2][-1].words[:-1]
    data = as_file([orders[0], [ngram for ngram in orders[1] if ngram.words != context], orders[2]])
    with pytest.raises(InputError, match="n-grams after .*, which the file lacks"):
        BackoffModel(reader(data), [[word for word in orders[2][-1].words if word not in (START, END)]])


def test_a_mixture_needs_text(run: Run, tmp_path: Path) -> None:
    lm = small_lm(tmp_path / "lm")
    (tmp_path / "lm.arpa").write_bytes(as_file(a_model(2, 7)))
    for more, said in ((("--interpolate", tmp_path / "lm.arpa"), "needs text to find the weight"),
                       (("--interpolate", "-"), "both are standard input"),
                       (("--interpolate", tmp_path / "lm.arpa", "--flush"), "--flush answers line by line")):  # fmt: skip
        result = run("score-lm", "-", "-m", lm, *more)
        assert (result.status, result.out) == (2, b"")
        assert said in result.last_line


def test_the_mixture_is_the_best_one() -> None:
    data = as_file(a_model(3, 3))
    rng = random.Random(4)
    sentences = [[rng.choice((*KNOWN, *OUTSIDE, b"house", b"unseen")) for _ in range(6)] for _ in range(50)]
    scorer = NgramScorer(language_model())
    mixture = fit_mixture(scorer, reader(data), sentences)
    # by hand: p(UNK) of the network is shared out as the unigrams of the file say
    table = table_of(data)
    outside = {word: 10.0 ** table[(word,)].log10_p for word in (*OUTSIDE, UNKNOWN)}
    network, ngram, known = [], [], []
    backoff = BackoffModel(reader(data), sentences)
    for sentence in sentences:
        found = scorer.sentences([sentence])
        ngram += [10.0**x for x in backoff.log10_probs(sentence)]
        for word, log_p, unknown in zip((*sentence, END), found.log_probs, found.unknown, strict=True):
            share = outside.get(word, outside[UNKNOWN]) / sum(outside.values()) if unknown else 1.0
            network.append(math.exp(log_p) * share)
            known.append((word,) in table)
    n, g, k = np.array(network), np.array(ngram), np.array(known)
    best = min((float(-np.log(x * n[k] + (1 - x) * g[k]).mean()), x) for x in np.linspace(0, 1, 2001))
    assert mixture.weight == pytest.approx(best[1], abs=2e-3)
    assert mixture.perplexities["mixture"] == pytest.approx(math.exp(best[0]), rel=1e-5)
    assert (mixture.tokens, mixture.unknown) == (350, int((~k).sum()))
    assert mixture.including_unknown["network"] == pytest.approx(float(np.exp(-np.log(n).mean())), rel=1e-5)
