"""A small world whose every number is known: four segments, a table of ten pairs."""

import json
import math
import re
from pathlib import Path

import pytest
from conftest import Run
from moses_harness import run_program
from sacrebleu.metrics.bleu import BLEU

from phrase_rescore.evaluation.why import CUTS, Comparison, differing_regions, why
from phrase_rescore.evaluation.why_text import lines, most
from phrase_rescore.moses.hypotheses import UsedPhrase

SOURCE = "a b c\nd e\na q\na d\n"
REFERENCE = "x y z\nu v\nx q\nx u\n"
BASELINE = "x |0-0| w |1-1| z |2-2|\nu v |0-1|\nx |0-0| q |1-1|\nx |0-0| u |1-1|\n"
RNN = "x |0-0| y z |1-2|\nv |1-1| u |0-0|\nx |0-0| q |1-1|\nu |1-1| x |0-0|\n"
ROWS = [  # source, target, φ(t|s), p(t|s), words unknown, counts of target, source and both
    ("a", "x", 0.75, 0.5, 0, "4 4 3"), ("a", "y", 0.25, 0.25, 0, "1 4 1"),
    ("b", "w", 0.6, 0.125, 0, "9 5 3"), ("b", "y", 0.4, 0.25, 0, "9 5 2"),
    ("b c", "y z", 1, 0.0625, 1, "1 1 1"), ("c", "z", 1, 0.5, 1, "2 2 2"),
    ("d", "u", 0.5, 0.25, 0, "1 20 10"), ("d", "v", 0.5, 0.5, 0, "1 20 10"),
    ("d e", "u v", 1, 0.01, 0, "12 12 12"), ("e", "v", 1, 0.5, 0, "2000 1000 1000"),
    ("never", "used", 1, 0.5, 0, "1 1 1"),
]  # fmt: skip


def table_text(rows: list[tuple[str, str, float, float, int, str]]) -> str:
    return "".join(
        f"{src} ||| {tgt} ||| 0.5 0.25 {phi} 0.125 {p} {math.exp(unknown):.7g} ||| 0-0 ||| {counts} ||| |||\n"
        for src, tgt, phi, p, unknown, counts in rows
    )


def sidecar(*columns: tuple[int, str, str]) -> str:
    described = [{"column": n, "feature": feature, "model": "m", "unit": unit} for n, feature, unit in columns]
    return json.dumps({"format_version": 1, "columns": described})


P = (5, "log_prob", "probability: exp of the natural log p(target | source), EOS included")
N = (6, "unknown_words", "exp of the number of target words unknown to the model")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name, text in (("src", SOURCE), ("ref", REFERENCE), ("base", BASELINE), ("rnn", RNN), ("table", table_text(ROWS))):
        (tmp_path / name).write_text(text)
    (tmp_path / "table.columns.json").write_text(sidecar(P, N))
    return tmp_path


@pytest.fixture
def longer(folder: Path) -> Path:
    """The same with four words more in every segment, which both systems have right: else no 4-gram would be."""
    for name, text in (("src", SOURCE), ("ref", REFERENCE), ("base", BASELINE), ("rnn", RNN)):
        words = [len(line.split()) for line in SOURCE.splitlines()]
        spans = [f" |{n}-{n + 3}|" if name in ("base", "rnn") else "" for n in words]
        lines = zip(text.splitlines(), spans, strict=True)
        (folder / name).write_text(
            "".join(f"{line} {'M N O P' if name != 'src' else 'm n o p'}{span}\n" for line, span in lines)
        )
    (folder / "table").write_text(table_text([*ROWS, ("m n o p", "M N O P", 1, 0.5, 0, "5 5 5")]))
    return folder


def compared(folder: Path, **settings: int) -> Comparison:
    systems = (("base", folder / "base"), ("rnn", folder / "rnn"))
    return why(systems, source=folder / "src", reference=folder / "ref", table=folder / "table", **settings)


def plain(text: str) -> list[str]:
    return [" ".join(word for word in line.split() if "|" not in word) for line in text.splitlines()]


def test_minimal_regions() -> None:
    def used(text: str) -> tuple[UsedPhrase, ...]:
        return tuple(UsedPhrase(int(part[0]), int(part[1]), part[2:].encode()) for part in text.split())

    cases = [
        ("00a 12b 33c", "00a 12b 33c", []),
        ("12b 00a 33c", "00a 33c 12b", []),  # another order alone
        ("00a 12b 33c", "00x 12b 33y", [(0, 0, CUTS[0]), (3, 3, CUTS[0])]),
        ("00a 12b 33c", "01x 22y 33c", [(0, 2, CUTS[3])]),
        ("00a 11b 22c", "01x 22c", [(0, 1, CUTS[1])]),
        ("03a", "22x 00y 11z 33w", [(0, 3, CUTS[2])]),
        ("01a 23b", "00x 12y 33z", [(0, 3, CUTS[2])]),
        ("", "", []),
    ]
    for one, other, expected in cases:
        found = differing_regions(used(one), used(other))
        assert [(region.first, region.last, region.cut) for region in found] == expected
        assert all(phrase in used(one) for region in found for phrase in region.phrases[0])


def test_totals(folder: Path) -> None:
    base, rnn = compared(folder).usage
    assert [(usage.phrases, usage.copied, usage.target_words, usage.in_table) for usage in (base, rnn)] == [(8, 1, 9, 8)] * 2
    assert [round(usage.logs[5]) for usage in (base, rnn)] == [1, 1]
    assert base.logs[4] == pytest.approx(3 * math.log(0.5) + math.log(0.125 * 0.5 * 0.01 * 0.25))
    assert not base.missing
    assert not rnn.missing


def test_right_words_are_those_of_bleu(folder: Path) -> None:
    """A word is right no more often than the reference has it, and phrases that both use come first."""
    (folder / "ref").write_text("x y z\nu v\nq q\nx x\n")
    (folder / "base").write_text("x |0-0| w |1-1| x |2-2|\nv v |0-1|\nx |0-0| q |1-1|\nx |0-0| x |1-1|\n")
    found = compared(folder)
    right = [[[choice.right for choice in of.values()] for of in segment.choices] for segment in found.segments]
    assert [of for of, _ in right] == [[1, 0, 0], [1], [0, 1], [1, 1]]
    for system in (0, 1):
        assert found.bleu[system].counts[0] == sum(sum(both[system]) for both in right)


def test_changes(folder: Path) -> None:
    found = compared(folder)
    one, other = [1, 2, 1, 2, 2], [1, 2, 2, 2, 2]
    assert found.changes == {
        CUTS[1]: one, CUTS[2]: other, "a target of the same length": [2, 4, 3, 4, 4],
        "its rarest pair seen less often": [2, 4, 3, 4, 4],  # 1 for 2, 10 for 12
        "as many words unknown to the network": [2, 4, 3, 4, 4], "all": [2, 4, 3, 4, 4],
    }  # fmt: skip
    assert [bool(segment.regions) for segment in found.differing] == [True, True, False]


def test_the_same_words_from_other_phrases_change_nothing(folder: Path) -> None:
    (folder / "rnn").write_text(RNN.replace("x |0-0| y z |1-2|", "x w |0-1| z |2-2|"))
    found = compared(folder)
    assert [segment.recut for segment in found.segments] == [1, 0, 0, 0]
    assert not found.segments[0].regions
    assert found.changes["all"] == [1, 2, 2, 2, 2]
    assert [segment.number for segment in found.differing] == [2, 4]


def test_texts_that_do_not_go_together(folder: Path) -> None:
    (folder / "ref").write_text(REFERENCE.replace("x q", "l ' q"))
    (folder / "base").write_text(BASELINE.replace("x |0-0| q", "l &apos; |0-0| q"))
    found = compared(folder)
    said = (
        f"{folder}/base: it has Moses' escapes and the reference has none ({folder}/ref); right words then count as wrong ones"
    )
    assert said in found.warnings


def test_a_penalty_for_short_outputs_is_told_apart(longer: Path) -> None:
    text = (longer / "rnn").read_text().replace("u |1-1| x |0-0| ", "x |0-1| ")
    (longer / "rnn").write_text(text)
    found = compared(longer)
    assert found.bleu[1].bp == pytest.approx(math.exp(1 - 25 / 24))
    one, other = found.bleu[0].score, found.bleu[1].score / found.bleu[1].bp
    said = f"Without its penalty for short outputs BLEU would be {one:.2f} → {other:.2f}: {other - one:+.2f}."
    assert said in lines(found)


def test_bleu_is_sacrebleu_s(longer: Path) -> None:
    found = compared(longer)
    metric, sentence = BLEU(tokenize="none", force=True), BLEU(tokenize="none", force=True, effective_order=True)
    reference = (longer / "ref").read_text().splitlines()
    outputs = [plain((longer / name).read_text()) for name in ("base", "rnn")]
    for system, texts in enumerate(outputs):
        assert found.bleu[system].score == pytest.approx(metric.corpus_score(texts, [reference]).score)
        for segment, line, its in zip(found.segments, texts, reference, strict=True):
            assert segment.bleu[system] == pytest.approx(sentence.sentence_score(line, [its]).score)
    exchanged = [outputs[1][0], *outputs[0][1:]]
    effect = metric.corpus_score(exchanged, [reference]).score - found.bleu[0].score
    assert effect > 1
    assert found.segments[0].effect == pytest.approx(effect)
    assert found.segments[2].effect == 0


def test_most_gained_and_lost(longer: Path) -> None:
    gained, lost = most(compared(longer))
    assert [segment.number for segment in gained] == [1]
    assert sorted(segment.number for segment in lost) == [2, 4]
    assert lost[0].effect <= lost[1].effect < 0
    assert [len(part) for part in most(compared(longer, segments=1))] == [1, 1]
    assert most(compared(longer, segments=0)) == ([], [])


def test_the_columns_are_found(folder: Path) -> None:
    columns = compared(folder).table.columns.columns
    assert [column.name for column in columns] == ["φ(s|t)", "lex(s|t)", "φ(t|s)", "lex(t|s)", "p(t|s)", "unknown"]
    (folder / "table.columns.json").unlink()
    found = compared(folder)
    assert found.table.unknown.number == 6
    assert found.warnings == [f"{folder}/table has no .columns.json; its last two columns look like annotate's and are used"]


def test_logarithms_in_a_table_are_taken_as_they_are(folder: Path) -> None:
    (folder / "table.columns.json").write_text(sidecar((5, "log_prob", "natural log p(target | source), EOS included")))
    (folder / "table").write_text(table_text([(*row[:3], -abs(row[3]), *row[4:]) for row in ROWS]))
    assert compared(folder).table.pairs[b"b", b"w"].logs[4] == -0.125


def test_a_table_without_a_score(folder: Path) -> None:
    (folder / "table.columns.json").unlink()
    (folder / "table").write_text("".join(line.replace(" 1 |||", " 2.718 |||") for line in table_text(ROWS).splitlines(True)))
    found = compared(folder)
    assert (found.table.unknown, found.warnings) == (None, [])
    assert not any("unknown to the network" in line for line in lines(found))


def test_another_table_is_noticed(folder: Path) -> None:
    (folder / "table").write_text(table_text([row for row in ROWS if row[:2] not in (("b", "w"), ("d", "u"))]))
    found = compared(folder)
    assert found.usage[0].missing == {(b"b", b"w"): 1, (b"d", b"u"): 1}
    assert found.usage[1].missing == {(b"d", b"u"): 2}
    assert found.warnings == [
        f"{folder}/table lacks 4 of the 16 phrases, 'd ||| u' 3 times: "
        "did the systems use another table, or was it pruned later?"
    ]


def test_counts_may_be_missing(folder: Path) -> None:
    text = "".join(" ||| ".join(line.split(" ||| ")[:4]) + "\n" for line in table_text(ROWS).splitlines())
    (folder / "table").write_text(text)
    assert not any(name.startswith("its rarest") for name in compared(folder).changes)


TEXT = """\
rnn against base: 4 segments of src

3 of 4 outputs differ (75.0%), 1 of them only in the order of the same phrases.
"""


def test_the_text(longer: Path, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(longer)
    done = run("why", "--source", "src", "--reference", "ref", "--table", "table", "base=base", "rnn=rnn")
    assert (done.status, done.err) == (0, "")
    text = done.out.decode()
    assert text.startswith(TEXT)
    lines = [" ".join(line.split()) for line in text.splitlines()]
    segments, bleu = compared(longer).segments, compared(longer).bleu
    gains = [segment.bleu[1] - segment.bleu[0] for segment in segments]
    for expected in (
        f"BLEU {bleu[0].score:.2f} → {bleu[1].score:.2f}: {bleu[1].score - bleu[0].score:+.2f}.",
        f"Sentence BLEU: rnn wins {gains[0]:.0f} points in 1 segment and loses {-gains[1] - gains[3]:.0f} points "
        "in 2 segments.",
        "all 2 4 75.0% 4 100.0% +1",
        "log p(t|s) -0.567 -0.462 +0.105",
        "unknown to the network 4.2% 4.2%",
        "copied, unknown to the table 4.0% 4.0%",
        "phrase pair right φ(s|t) lex(s|t) φ(t|s) lex(t|s) p(t|s) unknown pair source",
        "|1-2| b c",
        "base b → w 0/1 -0.69 -1.39 -0.51 -2.08 -2.08 0 3 5",
        "c → z 1/1 -0.69 -1.39 0.00 -2.08 -0.69 1 2 2",
        "together -1.39 -2.77 -0.51 -4.16 -2.77 1",
        "rnn b c → y z 2/2 -0.69 -1.39 0.00 -2.08 -2.77 1 1 1",
        "the same phrases in another order",
    ):
        assert expected in lines
    assert max(map(len, text.splitlines())) <= 130


def test_empty_lines_and_odd_names(folder: Path, run: Run) -> None:
    for name in ("src", "ref", "base", "rnn"):
        (folder / name).write_text("\n" + (folder / name).read_text() + "\n")
    done = run("why", "--source", folder / "src", "--reference", folder / "ref", "--table", folder / "table",
               f"a\x1b[31mb={folder / 'base'}", f"c={folder / 'rnn'}")  # fmt: skip
    assert (done.status, done.err) == (0, "")
    assert "\x1b" not in done.out.decode()
    assert done.out.startswith(b"c against a\\x1b[31mb: 6 segments of ")
    assert b"3 of 6 outputs differ" in done.out


@pytest.mark.parametrize(("words", "status", "said"), [
    (["a=base"], 2, "error: 1 system: name two, the baseline first, as baseline=OUT rnn=OUT"),
    (["a=base", "a=rnn"], 2, "error: two systems are called 'a'; give each a name of its own"),
    (["a=base", "b=rnn", "--reference", "short"], 1,
     "error: short: 1 line where src has 4; the reference has a line for every line of the source"),
    (["a=base", "b=rnn", "--reference", "latin"], 1,
     r"error: latin:2: '\xe9' is not UTF-8; convert the file with iconv -t UTF-8"),
    (["a=base", "b=ref"], 1, "error: ref:1: no phrase segmentation; run moses with -t"),
    (["a=-", "b=-"], 2, "error: two inputs are '-', standard input; name a file for one of them"),
    (["a=base", "b=rnn", "--table", "-"], 2, "error: --table is read more than once; name a file"),
])  # fmt: skip
def test_errors_are_one_line(
    folder: Path, run: Run, monkeypatch: pytest.MonkeyPatch, words: list[str], status: int, said: str
) -> None:
    monkeypatch.chdir(folder)
    (folder / "short").write_text("x\n")
    (folder / "latin").write_bytes(b"x\n\xe9\nx\nx\n")
    done = run("why", "--source", "src", "--reference", "ref", "--table", "table", *words)
    assert (done.status, done.out, done.err) == (status, b"", f"phrase-rescore: {said}\n")


@pytest.mark.slow
@pytest.mark.moses
def test_the_real_decoder(decoder: Path, shared_data: Path, tmp_path: Path, run: Run) -> None:
    """All phrases that it uses are found in its table, and all its ways of telling them are read alike."""
    table = shared_data / "phrase-table.dev.gz"
    for side in ("en", "fr"):
        lines = (shared_data / f"dev.{side}").read_bytes().splitlines(keepends=True)[:100]
        (tmp_path / side).write_bytes(b"".join(lines))
    ini = (shared_data / "moses.ini").read_text().replace("path=phrase-table.gz", f"path={table}")
    ini = "".join(line for line in ini.splitlines(True) if not line.startswith(("KENLM", "LM0=")))
    outputs = {}
    for name, weights in (("one", "0.29 0.03 0.08 0.04"), ("other", "0.05 0.03 0.3 0.04")):
        text = re.sub("TranslationModel0= .*", f"TranslationModel0= {weights}", ini)
        (tmp_path / f"{name}.ini").write_text(text)
        command = [decoder, "-f", tmp_path / f"{name}.ini", "-i", tmp_path / "en", "-threads", 1, "-v", 0, "-s", 50,
                   "-n-best-list", tmp_path / f"{name}.nbest", 2, "distinct", "-include-segmentation-in-n-best"]  # fmt: skip
        outputs[name] = tmp_path / f"{name}.out"
        outputs[name].write_bytes(run_program([*command, "-t", "-print-alignment-info"], tmp_path))
    systems = tuple((name, str(path)) for name, path in outputs.items())
    texts = {"source": tmp_path / "en", "reference": tmp_path / "fr", "table": table}
    found = why(systems, **texts)
    assert len(found.differing) > 10
    for usage in found.usage:
        assert usage.phrases > 400
        assert not usage.missing
    lists = tuple((name, str(tmp_path / f"{name}.nbest")) for name in outputs)
    assert [segment.choices for segment in why(lists, **texts).segments] == [segment.choices for segment in found.segments]
    done = run("why", "--source", tmp_path / "en", "--reference", tmp_path / "fr", "--table", table,
               *("=".join(system) for system in systems))  # fmt: skip
    assert (done.status, done.err) == (0, "")
    assert f"{len(found.differing)} of 100 outputs differ" in done.out.decode()
