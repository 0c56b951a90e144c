"""examples/moses and examples/ems, run with stand-ins for Moses' programs: order, stops, going on, what each is given."""

import gzip
import os
import subprocess
from pathlib import Path
from typing import NamedTuple

import pytest
from conftest import ROOT, Run
from moses_harness import ini_text

pytestmark = pytest.mark.slow

EXAMPLES = ROOT / "examples"
TINY = "--max-steps 5 --hidden 8 --maxout 8 --rank 8 --threads 1"
TINY_LM = "--max-steps 5 --embedding 8 --hidden 8 --output 8 --threads 1"
ROWS = [f"s{i} ||| {side}{i} ||| 0.5 0.25 0.{i + 1} 1 ||| 0-0 ||| 2 2 1 ||| |||\n" for i in range(60) for side in "tu"]

# Every stand-in writes its name and what it was given to the log. What they do beyond that is as little as run.sh needs.
MOSES = """\
#!/bin/sh
while [ $# -gt 0 ]; do case $1 in -config) ini=$2 ;; -input-file) input=$2 ;; -n-best-list) list=$2 ;; esac; shift; done
echo "moses $(basename "$(dirname "$ini")")" >> "$LOG"
sed 's/s/t/g; s/$/ /' "$input" > out.$$
if [ -e "$STATE/zero-differs" ] && grep -q num-features=6 "$ini"; then sed -i '2s/^/another /' out.$$; fi
if [ -e "$STATE/loses-a-line" ]; then sed -i 1d out.$$; fi
if [ -n "$list" ]; then
    awk '{ for (i = 1; i < 3; i++) print NR - 1, "|||", i < 2 ? $0 : "t1", "||| LM0=", -i, "|||", -i }' out.$$ > "$list"
fi
cat out.$$; rm out.$$
"""
FILTER = """\
#!/bin/sh
echo "filter $(basename "$1")" >> "$LOG"
if [ -d "$1" ]; then echo "The directory $1 already exists" >&2; exit 1; fi
mkdir "$1" && cp "$2" "$1/moses.ini"
"""
MERT = """\
#!/bin/sh
echo "mert $*" >> "$LOG"
ini=$4
while [ $# -gt 0 ]; do case $1 in --working-dir) folder=$2 ;; esac; shift; done
cd "$folder" || exit
test -e filtered/moses.ini || { echo "nothing is filtered" >&2; exit 1; }
test ! -e features.list || { echo "Mismatched lambdas" >&2; exit 1; }
echo stale > features.list
echo 1 > finished_step.txt
if [ -e "$STATE/mert-fails" ]; then echo "The decoder died" >&2; exit 1; fi
cp "$ini" moses.ini
"""


class Site(NamedTuple):
    """An installation of Moses and an experiment."""

    folder: Path
    env: dict[str, str]

    def run(self, **settings: object) -> subprocess.CompletedProcess[str]:
        env = {**self.env, **{name: str(value) for name, value in settings.items()}}
        (self.folder / "log").unlink(missing_ok=True)
        script = ["bash", EXAMPLES / "moses" / "run.sh"]
        return subprocess.run(script, cwd=self.folder, env=env, capture_output=True, text=True, timeout=300, check=False)

    def log(self) -> list[str]:
        log = self.folder / "log"
        return log.read_text().splitlines() if log.exists() else []

    def names(self) -> list[str]:
        """What ran: the programs, each with the first thing it was given."""
        return [" ".join(line.split()[:2]) if not line.startswith("mert") else "mert" for line in self.log()]

    @property
    def work(self) -> Path:
        return self.folder / "work"


@pytest.fixture(autouse=True)
def ours_on_the_path(warm_path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", warm_path)


OF_TUNING = ("extractor", "mert", "pro", "kbmira", "evaluator")  # mert-moses.pl stops without any of them


@pytest.fixture
def site(tmp_path: Path) -> Site:
    programs = {
        "bin/moses": MOSES, "scripts/training/filter-model-given-input.pl": FILTER, "scripts/training/mert-moses.pl": MERT,
        **dict.fromkeys((f"bin/{name}" for name in OF_TUNING), ""),
    }  # fmt: skip
    for name, text in programs.items():
        program = tmp_path / "moses" / name
        program.parent.mkdir(parents=True, exist_ok=True)
        program.write_text(text)
        program.chmod(0o755)
    model = tmp_path / "model"
    model.mkdir()
    (model / "phrase-table.gz").write_bytes(gzip.compress("".join(sorted(ROWS)).encode()))
    (model / "moses.ini").write_text(ini_text(model / "phrase-table.gz", 4))
    for name in ("dev", "test"):
        for side, letter in (("en", "s"), ("fr", "t")):
            lines = [" ".join(f"{letter}{(i * j) % 60}" for j in range(1, 8)) for i in range(20)]
            (tmp_path / f"{name}.{side}").write_text("".join(f"{line}\n" for line in lines))
    env = {
        **os.environ, "OMP_NUM_THREADS": "1",
        "LOG": str(tmp_path / "log"), "STATE": str(tmp_path),
        "MOSES": str(tmp_path / "moses"), "MODEL": str(model), "TUNE": str(tmp_path / "dev"), "TEST": str(tmp_path / "test"),
        "SRC": "en", "TGT": "fr", "WORK": str(tmp_path / "work"), "TRAIN_OPTIONS": TINY, "CHECK_SENTENCES": "5",
        "LM_OPTIONS": TINY_LM, "TEXT": str(tmp_path / "dev.fr"),
    }  # fmt: skip
    return Site(tmp_path, env)


CHECK = ["filter filtered.baseline", "filter filtered.zero", "moses filtered.baseline", "moses filtered.zero"]
RANGE = "--range=TranslationModel0:0..1,0..1,0..1,0..1,0..1,-1..1"


def translations(name: str) -> list[str]:
    return [f"{program} filtered.{name}.{part}" for part in ("tune", "test") for program in ("filter", "moses")]


def assert_failed(done: subprocess.CompletedProcess[str], step: str) -> None:
    assert done.returncode == 1, done.stderr
    assert f"FAILED in step {step}: " in done.stderr


def test_the_whole_road_stops_and_goes_on(site: Site) -> None:
    """One experiment, stopped at one place after the other: what is done is not done again."""
    (site.folder / "zero-differs").touch()
    done = site.run()
    assert_failed(done, "zero-weights")
    assert "differ: " in done.stderr, "cmp says where"
    assert site.names() == CHECK
    assert not (site.work / "rnn.ini").exists()

    (site.folder / "zero-differs").unlink()
    (site.folder / "mert-fails").touch()
    done = site.run()
    assert "run.sh: annotate: done before" in done.stderr
    assert_failed(done, "tune-rnn-1")
    assert "The decoder died" in done.stderr
    assert site.names() == [*CHECK, "filter filtered.rnn", "mert"]
    assert site.log()[-1] == (
        f"mert {site.folder}/dev.en {site.folder}/dev.fr {site.folder}/moses/bin/moses {site.work}/rnn.ini "
        f"--working-dir {site.work}/tune.rnn.1 --mertdir {site.folder}/moses/bin --rootdir {site.folder}/moses/scripts "
        f"--decoder-flags -threads 1 {RANGE}"
    )
    assert "TranslationModel0= 0.1 0.1 0.5 0.1 0.04 0\n" in (site.work / "rnn.ini").read_text()

    (site.folder / "mert-fails").unlink()
    (site.folder / "loses-a-line").touch()
    done = site.run()
    assert done.returncode == 1
    assert f"{site.work}/tune.rnn.1.out.part" in done.stderr
    assert site.names() == ["mert", *translations("rnn.1")[:2]]
    assert "--continue" in site.log()[0].split(), "with the iterations that are finished, and a new features.list"

    (site.folder / "loses-a-line").unlink()
    done = site.run()
    assert done.returncode == 0, done.stderr
    assert site.names() == [*translations("rnn.1"), *translations("baseline")]
    assert "baseline" in done.stdout
    assert "rnn" in done.stdout
    assert "100" in done.stdout, "the stand-in translates as the references do"
    assert (site.work / "test.rnn+lm.1.out").read_text() == (site.folder / "test.fr").read_text()
    assert "CSLM0= " in (site.work / "rnn+lm.1.ini").read_text()

    again = site.run(THREADS=2)
    assert (again.returncode, again.stdout, site.log()) == (0, done.stdout, [])
    assert all(line.endswith("done before") for line in again.stderr.splitlines())

    other = site.run(RUNS=2)
    assert other.returncode == 1
    assert other.stderr.splitlines()[-1] == "> RUNS=2"
    assert site.run().returncode == 0, "the settings it was begun with are still those"


def test_two_models_several_runs_batch_mira_and_a_baseline_tuned_again(site: Site) -> None:
    tiny = "--max-steps 5 --embedding 8 --hidden 8 --threads 1"
    more = {"BITEXT": f"{site.folder}/dev", "NMT_OPTIONS": tiny}  # a translation model, too
    done = site.run(INVERSE="yes", RUNS=2, TUNER="mira", RETUNE_BASELINE="yes", **more)
    assert done.returncode == 0, done.stderr
    assert "NMT0= " in (site.work / "rnn+lm.2.ini").read_text()
    assert "num-features=8" in (site.work / "rnn.ini").read_text()
    assert site.names() == [
        *CHECK, "filter filtered.rnn", *(["mert", *translations("rnn.1")]), *(["mert", *translations("rnn.2")]),
        "filter filtered.baseline", *(["mert", *translations("baseline.1")]), *(["mert", *translations("baseline.2")]),
    ]  # fmt: skip
    tunings = [line.split() for line in site.log() if line.startswith("mert")]
    assert all("--batch-mira" in line and "--return-best-dev" in line and RANGE[:8] not in line for line in tunings)
    assert [line[4] for line in tunings] == [f"{site.work}/rnn.ini"] * 2 + [f"{site.folder}/model/moses.ini"] * 2


@pytest.mark.parametrize(("settings", "named"), [
    ({"MOSES": ""}, "MOSES"), ({"WORK": "work"}, "WORK=work"), ({"TUNE": "/a b/dev"}, "TUNE=/a b/dev"),
    ({"MOSES": "/none"}, "/none/bin/moses"), ({"TGT": "de"}, "{}/dev.de"), ({"INI": "{}/relative.ini"}, "{}/relative.ini:4"),
    ({"TUNER": "pro"}, "TUNER=pro"), ({"RUNS": "0"}, "RUNS=0"), ({}, "{}/moses/bin/kbmira"),
])  # fmt: skip
def test_settings_that_are_refused(site: Site, settings: dict[str, str], named: str) -> None:
    relative = "# path=here\n[feature]\nKENLM path=/lm\nPhraseDictionaryMemory name=T path=phrase-table.gz\n"
    (site.folder / "relative.ini").write_text(relative)
    if not settings:
        Path(named.format(site.folder)).unlink()
    done = site.run(**{name: value.format(site.folder) for name, value in settings.items()})
    assert done.returncode in (1, 2)
    assert done.stderr.startswith(f"run.sh: {named.format(site.folder)}")
    assert site.log() == []


def call(folder: Path, script: str, *args: object) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "OMP_NUM_THREADS": "1"}
    command = ["bash", EXAMPLES / "ems" / script, *map(str, args)]
    return subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, timeout=120, check=False)


ROW = b"the house ||| das haus ||| 0.5 0.5 0.5 0.5 ||| 0-0 1-1 ||| 1 1 1 ||| |||\n"


def scores(path: Path) -> int:
    return len(gzip.decompress(path.read_bytes()).split(b"|||")[2].split())


def test_ems_annotates_between_stems_and_factored_tables_by_models_of_their_own(tmp_path: Path, model_dir: str) -> None:
    for name in ("plain.1", "t.1.0-0", "t.1.1,0-2"):
        (tmp_path / f"{name}.gz").write_bytes(gzip.compress(ROW))
    (tmp_path / "t.1.half-f2e.gz").write_bytes(b"no table of a factored model")
    (tmp_path / "m.0-0").symlink_to(model_dir)
    for model, stem in ((model_dir, "plain.1"), (tmp_path / "m", "t.1")):
        done = call(tmp_path, "annotate-phrase-table.sh", "-m", model, "-q", tmp_path / stem, tmp_path / f"out.{stem}")
        assert done.returncode == 0, done.stderr
    found = {path.name: scores(path) for path in tmp_path.glob("out.*.gz")}
    assert found == {"out.plain.1.gz": 6, "out.t.1.0-0.gz": 6, "out.t.1.1,0-2.gz": 4}
    assert f"{tmp_path}/t.1.1,0-2.gz" in done.stderr
    bad = call(tmp_path, "annotate-phrase-table.sh", "-m", tmp_path / "none", tmp_path / "plain.1", tmp_path / "bad.1")
    assert bad.returncode == 2
    assert not (tmp_path / "bad.1.gz").exists()


@pytest.mark.parametrize(("options", "named"), [
    ((), "-m DIR"), (("-m", "none"), "{}/t: no model"), (("-m", "none", "other"), "other.gz"),
])  # fmt: skip
def test_ems_without_a_model_or_a_table(tmp_path: Path, options: tuple[str, ...], named: str) -> None:
    (tmp_path / "t.0-0.gz").write_bytes(gzip.compress(ROW))
    stems = ["out"] if "other" in options else [tmp_path / "t", "out"]
    done = call(tmp_path, "annotate-phrase-table.sh", *options, *stems)
    assert done.returncode == 1
    assert named.format(tmp_path) in done.stderr.splitlines()[-1]


def test_ems_inis_have_the_columns_of_the_tables(run: Run, tmp_path: Path, model_dir: str) -> None:
    """As train-model.perl writes them for EMS: a table's path without .gz, one that is as it was, a glue grammar."""
    for name in ("a.gz", "b.before.gz"):
        (tmp_path / name).write_bytes(gzip.compress(ROW))
    assert run("annotate", tmp_path / "b.before.gz", "-m", model_dir, "-o", tmp_path / "b.gz", "-q").status == 0
    line = "PhraseDictionaryMemory name=TranslationModel{} num-features={} path={} input-factor=0 output-factor=0\n"
    tables = [line.format(i, n, tmp_path / name) for i, (name, n) in enumerate([("a", 4), ("b", 4), ("glue-grammar", 1)])]
    weights = ["TranslationModel0= 0.2 0.2 0.2 0.2\n", "TranslationModel1= 0.2 0.2 0.2 0.2\n", "TranslationModel2= 1\n"]
    ini = "".join(["[feature]\nWordPenalty\n", *tables, "[weight]\n", *weights])
    (tmp_path / "glue-grammar").write_bytes(b"a ||| b ||| 1 2\n")
    (tmp_path / "ini.made").write_text(ini)
    trainer = tmp_path / "train-model.perl"
    trainer.write_text(
        '#!/bin/sh\necho "$*" > arguments\nwhile [ $# -gt 0 ]; do\n[ "$1" != -config ] || cp ini.made "$2"\nshift\ndone\n'
    )
    trainer.chmod(0o755)
    arguments = "-first-step", "9", "-config", tmp_path / "moses.ini", "-lm", "0:3:lm:8"
    done = call(tmp_path, "train-model.sh", trainer, *arguments)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "arguments").read_text().split() == list(map(str, arguments))
    expected = ini.replace(tables[1], line.format(1, 6, tmp_path / "b")).replace(weights[1], weights[1][:-1] + " 0.04 0\n")
    assert (tmp_path / "moses.ini").read_text() == expected
    assert call(tmp_path, "train-model.sh", trainer, "-first-step", "4").returncode == 0, "a step that writes no ini"
    trainer.write_text("#!/bin/sh\nexit 5\n")
    assert call(tmp_path, "train-model.sh", trainer, *arguments).returncode == 5
    assert call(tmp_path, "train-model.sh").returncode == 2
