"""ARPA files with a network's probabilities, against loops over words; sums; KenLM's rules of back-off."""

import io
import itertools
import math
import random
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import torch
from conftest import Run
from small_models import language_model, small_lm

from phrase_rescore.data.vocabulary import EOS, UNK
from phrase_rescore.errors import InputError
from phrase_rescore.lm.export import NetworkArpa
from phrase_rescore.lm.formats import END, START, UNKNOWN, ArpaReader, Ngram, write_arpa
from phrase_rescore.lm.scorer import BackoffModel, NgramScorer, fit_mixture

KNOWN = (b"a", b"b", b".", b"the")  # the network knows "house", too, which the file lacks
OUTSIDE = (b"zebra", b"yak")
WORDS = (*KNOWN, *OUTSIDE, END, UNKNOWN)


def p(table: dict[tuple[bytes, ...], Ngram], words: Sequence[bytes]) -> float:
    """p(last | others) by the definition of back-off."""
    if found := table.get(tuple(words)):
        return 10.0**found.log10_p
    if len(words) == 1:
        return 0.0
    context = table.get(tuple(words[:-1]))
    return (10.0**context.log10_backoff if context else 1.0) * p(table, words[1:])


def a_model(order: int, seed: int) -> list[list[Ngram]]:
    """A back-off model in which every context sums to one; some n-grams of each order are left out."""
    rng = random.Random(seed)
    table: dict[tuple[bytes, ...], Ngram] = {}
    weights = [rng.random() + 0.05 for _ in WORDS]
    for word, weight in zip(WORDS, weights, strict=True):
        table[(word,)] = Ngram((word,), math.log10(weight / sum(weights)), 0.0)
    table[(START,)] = Ngram((START,), 0.0, 0.0)
    orders = [list(table)]
    for n in range(2, order + 1):
        made = list[tuple[bytes, ...]]()
        for context in orders[-1]:
            if context[-1] in (END, UNKNOWN) or (context[0] == START) != (START in context):
                continue
            words = [word for word in WORDS if word != UNKNOWN and rng.random() < 0.4]
            words = [word for word in words if n == 2 or (*context[1:], word) in table]
            if not words:
                continue
            share = rng.uniform(0.3, 0.9)
            drawn = [rng.random() + 0.05 for _ in words]
            lower = sum(p(table, (*context[1:], word)) for word in words)
            for word, weight in zip(words, drawn, strict=True):
                table[(*context, word)] = Ngram((*context, word), math.log10(share * weight / sum(drawn)), 0.0)
            old = table[context]
            table[context] = Ngram(context, old.log10_p, math.log10((1 - share) / (1 - lower)))
            made += [(*context, word) for word in words]
        orders.append(made)
    rng.shuffle(orders[-1])
    return [[table[words] for words in of] for of in orders]


def as_file(orders: list[list[Ngram]]) -> bytes:
    stream = io.BytesIO()
    write_arpa(stream, [len(of) for of in orders], itertools.chain.from_iterable(orders))
    return stream.getvalue()


def reader(data: bytes) -> ArpaReader:
    return ArpaReader(data.splitlines(keepends=True), "lm.arpa")


def table_of(data: bytes) -> dict[tuple[bytes, ...], Ngram]:
    return {ngram.words: ngram for ngram in reader(data).ngrams()}


def network_p(context: Sequence[bytes], id: int) -> float:
    lm = language_model()
    sizes = lm.model.config
    before = [EOS if word == START else int(lm.vocab.encode([word])[0]) for word in context][-(sizes.order - 1) :]
    fill = EOS if START in context else sizes.missing
    ids = [fill] * (sizes.order - 1 - len(before)) + before
    return math.exp(-lm.model(torch.tensor([ids]), torch.tensor([id])).item())


def id_of(word: bytes) -> int:
    return EOS if word == END else int(language_model().vocab.encode([word])[0])


def contexts_of(table: dict[tuple[bytes, ...], Ngram], order: int) -> list[tuple[bytes, ...]]:
    """Every context of known words, and those that the file has."""
    inner = [context for n in range(order) for context in itertools.product((*KNOWN, *OUTSIDE), repeat=n)]
    return [*inner, *((START, *context) for context in inner if len(context) < order - 1)]


@pytest.mark.parametrize(("order", "seed"), [(1, 1), (2, 2), (3, 3), (3, 4)])
def test_every_context_sums_to_one_before_and_after(order: int, seed: int) -> None:
    orders = a_model(order, seed)
    data = as_file(orders)
    before = table_of(data)
    made = NetworkArpa(reader(data), language_model(), "lm.arpa")
    stream = io.BytesIO()
    write_arpa(stream, made.counts, made.ngrams())
    after = table_of(stream.getvalue())
    assert list(after) == list(before)  # the n-grams, in their order
    for table in (before, after):
        for context in contexts_of(table, order):
            assert sum(p(table, (*context, word)) for word in WORDS) == pytest.approx(1, abs=1e-6), context


@pytest.mark.parametrize(("order", "seed"), [(2, 2), (3, 3)])
def test_probabilities_are_the_networks(order: int, seed: int) -> None:
    data = as_file(a_model(order, seed))
    before = table_of(data)
    after = {ngram.words: ngram for ngram in NetworkArpa(reader(data), language_model(), "x").ngrams()}
    checked = 0
    for words, ngram in after.items():
        if len(words) == 1:
            continue
        context, word = words[:-1], words[-1]
        if id_of(word) == UNK:
            assert ngram.log10_p == pytest.approx(before[words].log10_p, abs=1e-6)
            continue
        outside = sum(p(before, (*context, other)) for other in (*OUTSIDE, UNKNOWN))
        expected = network_p(context, id_of(word)) * (1 - outside) / sum(network_p(context, id_of(w)) for w in (*KNOWN, END))
        assert 10.0**ngram.log10_p == pytest.approx(expected, rel=1e-4), words
        checked += 1
    assert checked > 5


def test_what_the_network_gives_to_words_that_the_file_lacks_goes_to_no_other_word() -> None:
    """The file lists every word but <unk> after "a"; the network is sure of "house", which the file does not have."""
    lm = language_model()
    lm.model.b_G.data[id_of(b"house")] += 8
    words = [word for word in WORDS if word != UNKNOWN]
    unigrams = [Ngram((word,), math.log10(0.9999 / len(words)), 0.0) for word in words]
    unigrams += [Ngram((UNKNOWN,), -4.0, 0.0), Ngram((START,), 0.0, 0.0)]
    pairs = [Ngram((b"a", word), math.log10(0.9999 / len(words)), 0.0) for word in words]
    made = NetworkArpa(reader(as_file([unigrams, pairs])), lm, "x")
    after = {ngram.words: ngram for ngram in made.ngrams()}
    assert 10 ** after[(UNKNOWN,)].log10_p == pytest.approx(1e-4, rel=1e-3)
    assert p(after, (b"a", UNKNOWN)) == pytest.approx(1e-4, rel=1e-2)
    assert sum(p(after, (b"a", word)) for word in WORDS) == pytest.approx(1, abs=1e-6)


def test_a_network_that_is_sure_of_the_unknown_word() -> None:
    lm = language_model()
    lm.model.b_G.data[UNK] += 25
    data = as_file(a_model(2, 2))
    sure, other = ({n.words: n for n in NetworkArpa(reader(data), m, "x").ngrams()} for m in (lm, language_model()))
    assert [n.log10_p for n in sure.values()] == pytest.approx([n.log10_p for n in other.values()], abs=1e-5)


def test_sentences_by_back_off() -> None:
    orders = a_model(3, 5)
    data = as_file(orders)
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
    data = change(as_file(a_model(2, 2)))
    with pytest.raises(InputError, match=found):
        NetworkArpa(reader(data), language_model(), "lm.arpa")


def test_the_commands(run: Run, tmp_path: Path) -> None:
    lm = small_lm(tmp_path / "lm")
    (tmp_path / "lm.arpa").write_bytes(as_file(a_model(3, 3)))
    result = run("export-lm", tmp_path / "lm.arpa", "-m", lm, "-o", tmp_path / "out.arpa")
    assert result.status == 0, result.err
    data = (tmp_path / "out.arpa").read_bytes()
    text = b"a b zebra . the\nthe unseen house b\n\n"
    mixed = run("score-lm", "-", "-m", lm, "--interpolate", tmp_path / "lm.arpa", stdin=text)
    assert mixed.status == 0, mixed.err
    sentences = [line.split() for line in text.splitlines()]
    before, after = (BackoffModel(reader(d), sentences) for d in ((tmp_path / "lm.arpa").read_bytes(), data))
    log10 = [x for sentence in sentences for x in before.log10_probs(sentence)]
    assert f"n-gram model: perplexity {10 ** -np.mean(log10):.6g} including OOVs" in mixed.err
    assert [x for s in sentences for x in after.log10_probs(s)] != pytest.approx(log10, abs=0.01)


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
    lambda d: d.replace(b"\n\n", b"\n \t\n\n").replace(b"\n-0.19", b"\n\n-0.19") + b"\n \n",
    lambda d: (b"\n# made by hand\n" + d)[:-1],
    lambda d: d.replace(b"ngram 1=", b"ngram  1=   +").replace(b"ngram 2=", b"ngram 02=0"),
    lambda d: d.replace(b"\n", b"\r\n"), lambda d: d.replace(b" the\n", b" the\r\n"),
    lambda d: d.replace(b"\tzebra", b"\t \tzebra").replace(b"zebra the\n", b"zebra \tthe\n"),
    lambda d: d.replace(b"\n-", b"\n  -").replace(b"zebra the\n", b"zebra the\t-0.0 \n"),
    lambda d: d.replace(b"<unk>", b"<UNK>"),
    lambda d: d.replace(b"1=9", b"1=11").replace(b"1-grams:\n", b"1-grams:\n-3\t<UNK>\t-1\n").replace(
        b"\n\n\\2", b"\n-3\tzebra\t0\n\n\\2"),  # lmplz on a text with <UNK> in
    lambda d: d.replace(b"2=17", b"2=27").replace(b"\n\n\\e", b"\n-3\tzebra the" * 10 + b"\n\n\\e"),
])  # fmt: skip
def test_what_kenlm_reads(change) -> None:
    data = as_file(a_model(2, 2))
    changed = change(data)
    assert changed != data
    assert b"zebra the\n" in data
    made = [set(NetworkArpa(reader(d), language_model(), "x").ngrams()) for d in (data, changed)]
    assert made[0] == made[1]
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
    with pytest.raises(InputError, match=f"n-grams after '{b' '.join(context).decode()}', which the file lacks"):
        NetworkArpa(reader(data), language_model(), "lm.arpa")
    with pytest.raises(InputError, match="n-grams after .*, which the file lacks"):
        BackoffModel(reader(data), [[word for word in orders[2][-1].words if word not in (START, END)]])


def test_a_mixture_needs_text(run: Run, tmp_path: Path) -> None:
    lm = small_lm(tmp_path / "lm")
    (tmp_path / "lm.arpa").write_bytes(as_file(a_model(2, 2)))
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
