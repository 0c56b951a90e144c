"""Text as Moses' detokenizer.perl makes it: what it wrote, and the script itself where it is."""

from __future__ import annotations

import os
import random
import subprocess
from pathlib import Path

import pytest
from sacremoses.corpus import NonbreakingPrefixes

from phrase_rescore.moses.detokenizer import Detokenizer

LANGUAGES = sorted({"ja", "ko", *NonbreakingPrefixes().available_langs.values()})


@pytest.mark.parametrize(("language", "tokens", "plain"), [
    ("cs", "v roce 2012 .", "v roce 2012."), ("cs", "v roce 2012 a 2013 , 14 .", "v roce 2012 a 2013,14."),
    ("cs", "je x&apos; - li a b c .", "je x' - li a b c."),
    ("cs", "ne - li e - mail - „ ano “ ( 1 ) „ x “ .", "ne-li e-mail - „ano“ (1) „x“."),
    ("fi", "EU : N ja EU: ssa , USA: Hän", "EU:n ja EU:ssa, USA:hän"),
    ("en", "the Jones ' house &apos;s , don &apos;t a @-@ b &amp;quot; .", "the Jones' house's, don't a-b &quot;."),
    ("en", "- &apos;s 1990 &apos;s &quot; a &quot; $ 5 %", "- 's 1990's \"a\" $5%"),
    ("fr", "l &apos; eau ? ( d&apos; été ! ) 5 %", "l 'eau ? (d'été !) 5 %"),
    ("it", "l&apos; acqua d&apos; estate", "l'acqua d'estate"), ("ga", "d&apos; fhear", "d' fhear"),
    ("zh", "中 文 a 中 。 2012 年", "中文 a 中。 2012 年"), ("ko", "한 국 어 .", "한 국 어."),
    ("de", "&bar; &#124; &bra; x &ket; &lt; z\u00a0&gt; €5 ( 5 ) .", "| | [x] < z\u00a0> €5 (5)."),
    ("de", "<unk> a . b >", "<unk> a . b >"), ("es", "@-@ ¿ Qué ? ¡ Ya !", "-¿ Qué? ¡Ya!"),
])  # fmt: skip
def test_plain_text(language: str, tokens: str, plain: str) -> None:
    assert Detokenizer(language)(tokens) == plain


MARKS = " '\".,:;?!%\\()[]<>|&-–„“`·¿$€09sSäNÄß।्日한、ｱΣ½"
WORDS = "li mail N ssa Hän 's s' l' x' '' ... 3.4 1,2 1, Mr. D.C. Nu. Fil. &apos; &quot; &bar; @-@ EU: EU:n 1990's Jones'"
PIECES = (*MARKS, *WORDS.split())


@pytest.mark.moses
@pytest.mark.parametrize("language", LANGUAGES)
def test_the_script_itself(language: str) -> None:
    scripts = Path(os.environ.get("MOSES_SCRIPTS") or Path(os.environ.get("MOSES_BIN", "/"), "../scripts"), "tokenizer")
    if not (scripts / "tokenizer.perl").is_file():
        pytest.skip("needs Moses' scripts")

    def perl(name: str, lines: list[str], *options: str) -> list[str]:
        command = ["perl", scripts / name, "-q", "-l", language, *options]
        done = subprocess.run(command, input="\n".join(lines).encode(), capture_output=True, check=True)
        return done.stdout.decode().split("\n")[:-1]

    draw = random.Random(language)
    abbreviations = [entry.split()[0] + "." for entry in NonbreakingPrefixes().words(language)]
    lines = [
        draw.choice(("", " ")).join(draw.choice((draw.choice(PIECES), draw.choice(abbreviations))) for _ in range(12)).strip()
        + "x"
        for _ in range(1000)
    ]
    tokens = perl("tokenizer.perl", lines)
    for text in lines, tokens, perl("tokenizer.perl", lines, "-a"):
        assert [Detokenizer(language)(line) for line in text] == perl("detokenizer.perl", text)
