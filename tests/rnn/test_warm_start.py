import pytest
import torch
from small_models import encoded, random_pairs, small_checkpoint

from phrase_rescore.data.vocabulary import EOS, FIRST_WORD, UNK, Vocabulary
from phrase_rescore.rnn.network import ModelConfig, RNNEncoderDecoder, initialise, packed
from phrase_rescore.rnn.train import FREEZABLE, WORD_ROWS, freeze, initialise_from, start_report

SIZES = {"hidden": 7, "embedding": 5, "maxout": 4, "rank": 3}  # of small_checkpoint


def listed(words) -> Vocabulary:
    return Vocabulary(tuple(words), (1,) * len(words))


def fresh(src: Vocabulary, tgt: Vocabulary, **sizes) -> RNNEncoderDecoder:
    model = RNNEncoderDecoder(ModelConfig(len(src), len(tgt), **(SIZES | sizes)))
    initialise(model, 5, paper=False, unigram=[-1.0 - i for i in range(len(tgt))])
    return model


def copied(model: RNNEncoderDecoder) -> dict[str, torch.Tensor]:
    return {name: weight.detach().clone() for name, weight in model.named_weights()}


def test_a_grown_vocabulary_takes_known_words_and_leaves_the_others():
    donor = small_checkpoint()
    # spelt like the special ids, but words like any other, and unknown to the donor
    src = listed((b"new", *donor.src_vocab.words[4:], b"UNK"))
    tgt = listed((*donor.tgt_vocab.words[::-1], b"neu", b"</s>"))
    model = fresh(src, tgt)
    before = copied(model)
    started = initialise_from(model, src, tgt, donor)
    assert started == {"source": (6, 8), "target": (11, 13)}
    told = "start from the other model, 2 at random"
    assert start_report(started) == [f"source: 6 of 8 words {told}", f"target: 11 of 13 words {told}"]
    theirs = dict(donor.model.named_weights())
    vocabularies = {"source": (src, donor.src_vocab), "target": (tgt, donor.tgt_vocab)}
    for name, weight in model.named_weights():
        if name not in WORD_ROWS:
            assert torch.equal(weight, theirs[name]), name
            continue
        ours, other = vocabularies[WORD_ROWS[name]]
        for row in (EOS, UNK):
            assert torch.equal(weight[row], theirs[name][row]), name
        for row, word in enumerate(ours.words, FIRST_WORD):
            known = word in other.words
            expected = theirs[name][other.words.index(word) + FIRST_WORD] if known else before[name][row]
            assert torch.equal(weight[row], expected), (name, word)


def test_the_report_warns_of_words_that_chance_placed():
    assert start_report({"source": (0, 3)}) == [
        "source: 0 of 3 words start from the other model, 3 at random",
        "warning: the other model knows no source word of this one; was it for another language?",
    ]
    words = {"source": (2, 3)}
    assert start_report(words, ["encoder"])[1:] == ["warning: --freeze encoder keeps random weights of 1 new source words"]
    assert start_report(words, ["output"])[1:] == [
        "warning: --freeze output keeps random weights: --init does not take them from the other model"
    ]
    assert len(start_report({"source": (3, 3), "target": (2, 2)}, ["decoder", "source-embedding"])) == 2


CHOICES = [[group] for group in FREEZABLE] + [["encoder", "output"], ["source-embedding", "target-embedding"]]


@pytest.mark.parametrize("groups", CHOICES, ids=",".join)
def test_the_rest_has_the_gradients_that_it_has_with_nothing_frozen(groups):
    models = [small_checkpoint().model.requires_grad_(True) for _ in range(2)]
    freeze(models[1], groups)
    frozen = {id(p) for group in groups for p in FREEZABLE[group](models[1])}
    for model in models:
        model(*packed(encoded(random_pairs(50)))).backward()
    for (name, free), part in zip(models[0].named_parameters(), models[1].parameters(), strict=True):
        if id(part) in frozen:
            assert part.grad is None, name
        else:
            assert torch.equal(part.grad, free.grad), name
