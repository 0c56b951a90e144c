"""Text as Moses' tokenizer.perl and detokenizer.perl make it: what they wrote, and the scripts themselves where they are."""

from __future__ import annotations

import os
import random
import subprocess
from pathlib import Path

import pytest
from sacremoses.corpus import NonbreakingPrefixes

from phrase_rescore.moses.scripts import Detokenizer, Tokenizer, TypedText
from phrase_rescore.moses.text import escape

LANGUAGES = sorted({"ja", "ko", *NonbreakingPrefixes().available_langs.values()})


@pytest.mark.parametrize(("language", "typed", "tokens"), [
    ("en", "Mr. Smith's flat in Washington, D.C.", "Mr. Smith 's flat in Washington , D.C ."),
    ("en", "No. 5, No. The 1990's 'stars', 1,000,2 on... e.g. x", "No. 5 , No . The 1990 's ' stars ' , 1,000,2 on ... e.g. x"),
    ("en", "中文 in English\u00a0(a\x01b)", "中文 in English ( ab )"),
    ("fr", "L'eau d'«Été», p. 5. C'est tout.'", "L' eau d ' « Été » , p. 5 . C' est tout . ' "),
    ("it", "art. 5 e pp. 6, all. B. Il dott. Rossi", "art . 5 e pp. 6 , all . B. Il dott. Rossi"),
    ("ga", "an t-am d'fhear", "an t-am d' fhear"),
    ("ca", "L'il·lusió, p.ex. l·L · fi", "L' il·lusió , p.ex. l·L · fi"),
    ("de", "z.B. der 3. Mai, Hr. Müller Nr. 5.", "z.B. der 3. Mai , Hr . Müller Nr. 5 ."),
    ("es", "Sr. Pérez, Fil. 2, ¿Qué?", "Sr. Pérez , Fil . 2 , ¿ Qué ?"),
    ("fi", "EU:n ja USA:Ssa klo 12:30", "EU:n ja USA : Ssa klo 12 : 30"),
    ("sv", "Ö. Svensson, S:t Erik:", "Ö . Svensson , S:t Erik :"), ("nl", "Nrs. 5 en Nr. 6", "Nrs . 5 en Nr. 6"),
    ("tdt", "uma ne'ebé, Nu. 5 no 'X'", "uma ne'ebé , Nu. 5 no ' X '"),
    ("hi", "क्या हिन्दी है।", "क ् या हिन ् दी है ।"), ("ml", "പി. കേരളം.", "പി . കേരളം ."),
    ("zh", "中文，2012年。A.B.", "中文 ， 2012年 。 A.B ."), ("ja", "日本語、テスト。ｱ", "日本語 、 テスト 。 ｱ"),
])  # fmt: skip
def test_tokens(language: str, typed: str, tokens: str) -> None:
    assert Tokenizer(language)(typed) == tokens


def test_text_is_lowercased_after_its_points_are_told_apart() -> None:
    """tokenizer.perl | lowercase.perl; Perl's lc knows no final sigma."""
    assert TypedText("en", lowercase=True)(b"It ends. No. 5, Mr. X") == b"it ends . no. 5 , mr. x"
    assert TypedText("el", lowercase=True)("ΟΔΟΣ &".encode()) == "οδοσ &amp;".encode()


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
def test_the_scripts_themselves(language: str) -> None:
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
    assert [escape(Tokenizer(language)(line).encode()).decode() for line in lines] == tokens
    for text in lines, tokens, perl("tokenizer.perl", lines, "-a"):
        assert [Detokenizer(language)(line) for line in text] == perl("detokenizer.perl", text)
