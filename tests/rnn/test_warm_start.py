import torch
from small_models import small_checkpoint

from phrase_rescore.data.vocabulary import EOS, FIRST_WORD, UNK, Vocabulary
from phrase_rescore.messages import Listener
from phrase_rescore.rnn.network import ModelConfig, RNNEncoderDecoder, initialise
from phrase_rescore.rnn.train import WORD_ROWS, initialise_from


def listed(words) -> Vocabulary:
    return Vocabulary(tuple(words), (1,) * len(words))


def test_a_grown_vocabulary_takes_known_words_and_leaves_the_others():
    donor = small_checkpoint()
    # spelt like the special ids, but words like any other, and unknown to the donor
    src = listed((b"new", *donor.src_vocab.words[4:], b"UNK"))
    tgt = listed((*donor.tgt_vocab.words[::-1], b"neu", b"</s>"))
    model = RNNEncoderDecoder(ModelConfig(len(src), len(tgt), hidden=7, embedding=5, maxout=4, rank=3))  # as the donor
    initialise(model, 5, paper=False, unigram=[-1.0 - i for i in range(len(tgt))])
    before = {name: weight.detach().clone() for name, weight in model.named_weights()}
    told = "start from the other model"
    said = list[str]()
    initialise_from(model, src, tgt, donor, Listener(said.append))
    assert said == [f"source: 6 of 8 words {told}", f"target: 11 of 13 words {told}"]
    theirs = dict(donor.model.named_weights())
    vocabularies = (src, donor.src_vocab), (tgt, donor.tgt_vocab)
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
