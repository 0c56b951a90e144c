"""ARPA files: any bytes are refused in one line, or are read to an end; no score is NaN."""

import math

import atheris

with atheris.instrument_imports(include=["phrase_rescore"]):
    from phrase_rescore.errors import RescoreError
    from phrase_rescore.lm.arpa import ArpaReader, BackoffModel

from harness import fuzz, told

SEEDS = [
    b"\\data\\\nngram 1=3\nngram 2=1\n\n\\1-grams:\n-1\t<s>\t-0.3\n-0.5\ta\t-0.1\n-0.4\t</s>\n\n"
    b"\\2-grams:\n-0.2\t<s> a\n\n\\end\\\n",
    b"#\n\\data\\\nngram  1=  3\n\n\\1-grams:\n0\t<UNK>\t0\n-inf\t<s>\n\n-1\t</s>\r\n\\end\\",
]
TOKENS = (b"\\data\\\n", b"\\end\\\n", b"\\1-grams:\n", b"ngram 1=1\n", b"-0.5\ta\n", b"\t", b"nan", b"-inf", b"\n")


def check(data: bytes) -> None:
    rows = [row + b"\n" for row in data.split(b"\n")]
    try:
        for _ in ArpaReader(rows, "lm.arpa").ngrams():
            pass
        model = BackoffModel(ArpaReader(rows, "lm.arpa"), [[b"a", b"b"], []])
    except RescoreError as error:
        told(error)
        return
    for sentence in ([b"a", b"b"], []):
        assert not any(map(math.isnan, model.log10_probs(sentence)))


if __name__ == "__main__":
    fuzz(check, SEEDS, 1024, TOKENS)
