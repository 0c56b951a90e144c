"""Rewrite a ``moses.ini`` for a table with added columns, or for a neural language model; every other byte stays."""

import os
import re
from collections.abc import Sequence
from itertools import compress, count, islice

from phrase_rescore.errors import InputError, OptionError
from phrase_rescore.files.inputs import display_name, open_plain, read_rows
from phrase_rescore.files.outputs import atomic_output
from phrase_rescore.files.paths import Path, check_apart, is_stream
from phrase_rescore.messages import Say, counted, printable, shown, silent
from phrase_rescore.moses.columns import RANGE_ROWS, ScoreColumn, TableColumns, check_compression, sidecar_path
from phrase_rescore.moses.ini import BINARIZED_TABLES, Feature, Ini, IniLine
from phrase_rescore.moses.table import BLANKS_AND_CR, is_number


def new_weights(how: str, added: Sequence[ScoreColumn]) -> list[bytes]:
    """Choose weights of added columns: ``small`` (0.04; 0 for counts), ``zero``, or numbers. Raises OptionError."""
    if how in ("small", "zero"):
        return [b"0.04" if how == "small" and not column.is_count(new=True) else b"0" for column in added]
    numbers = how.split(",")
    if len(numbers) != len(added):
        found = f"--weights {how} is {counted(len(numbers), 'weight')}; the table has {counted(len(added), 'new column')}"
        raise OptionError(f"{found}; give a weight for each")
    return [number.encode() for number in numbers]


def with_table(ini: bytes, feature: Feature, weights: IniLine, path: bytes, new: Sequence[bytes]) -> bytes:
    """Write the ini with another path of a table, and more columns, which have these ``new`` weights; all else stays.

    ``weights`` is the line of the old ones. ``tuneable-components`` gets a 1 for each column, as Moses wants one word for
    every column. Raises OptionError for a bad path.
    """
    _check_path("--table or --path", path)
    values = dict[bytes, bytes]()
    if new:
        values[b"num-features"] = b"%d" % (feature.n_columns + len(new))
        if tuneable := feature.value(b"tuneable-components"):
            values[b"tuneable-components"] = b",".join((tuneable, *[b"1"] * len(new)))
    if path != feature.path:
        values[b"path"] = path
    rows = ini.split(b"\n")
    row, rest = _cut(rows[feature.line.number - 1])
    for key, value in values.items():  # in its place, or at the end of the line
        found = re.search(rb"[ \t]" + re.escape(key) + rb"=[^ \t]*", row)
        begin, end = (found.start() + 1, found.end()) if found else (len(row), len(row))
        row = b"%b%b%b=%b%b" % (row[:begin], b"" if found else b" ", key, value, row[end:])
    rows[feature.line.number - 1] = row + rest
    row, rest = _cut(rows[weights.number - 1])
    rows[weights.number - 1] = b" ".join((row, *new)) + rest
    return b"\n".join(rows)


def _check_path(option: str, path: bytes) -> None:
    if not path or re.search(rb"[\s#]", path):
        raise OptionError(f"{option} {shown(path)}: an ini cannot have a path with blanks or '#'; rename the file")


def _cut(row: bytes) -> tuple[bytes, bytes]:
    """Cut a line of an ini after its last word, before blanks and a comment."""
    end = len(row.partition(b"#")[0].rstrip(BLANKS_AND_CR))
    return row[:end], row[end:]


def _check_new(there: TableColumns, old: Feature, last: int | None, where: str) -> None:
    """Raise InputError unless annotate wrote the columns that the ini does not count yet, by the sidecar or as ``last`` says.

    Raises OptionError as ``TableColumns.last``.
    """
    n, n_old, name = len(there), old.n_columns, display_name(there.table)
    if last is not None:
        there.last(last, "--columns")
    before, new, hint = f"{old} has num-features={n_old}", there.columns[n_old:], f"is {where} of another table?"
    if n < n_old:
        raise InputError(name, f"{counted(n, 'score column')}, but {before}", "pass the table that annotate wrote")
    if there.has_sidecar:
        last_old = there.columns[n_old - 1].added
        if foreign := [column.number for column in new if not column.added]:
            raise InputError(name, f"column {foreign[0]} is not one that {sidecar_path(name)} names, but {before}", hint)
        if last_old and any(column.added and column.added.model == last_old.model for column in new[:1]):
            raise InputError(name, f"column {n_old} is a model's, as column {n_old + 1}, but {before}", hint)
    elif last is None:
        found = f"no {sidecar_path(name)} says which of its {counted(n, 'score column')} are new"
        raise InputError(name, found, "put it beside the table, or give --columns K if the last K are new")
    elif len(new) not in (0, last):
        found = f"{counted(n, 'score column')} and --columns {last}, but {before}"
        raise InputError(name, found, f"give --columns {len(new)} if the last {len(new)} are new; else {hint}")


def _for_table(
    ini: Ini, table: str, name: str | None, path: str | None, how: str, last: int | None, warn: Say
) -> tuple[Ini, list[str]]:
    """Return the ini with ``table`` in place of the phrase table ``name``, or the only one, and the lines of the report."""
    old = ini.find_table(None if name is None else os.fsencode(name))
    if path is None:
        if old.implementation in BINARIZED_TABLES:
            kind = old.implementation.decode()
            raise OptionError(f"{old} is {kind}, a binarized table: give the one made of {table} with --path")
        check_compression(table)
    weights, there = ini.weight_line(old), TableColumns.read(table, RANGE_ROWS, loadable=True)
    _check_new(there, old, last, ini.where)
    new, n_old = new_weights(how, there.columns[old.n_columns :]), old.n_columns
    if new:
        ini.check_used(old)
        if not old.is_tuneable:
            found = f"{old} has tuneable=false: tuning will not move the new weights"
            warn(f"{ini.where}: {found}; take it out, or set them yourself")
    new_path = os.fsencode(os.path.abspath(table if path is None else path))
    after = with_table(ini.text, old, weights, new_path, new)
    if after == ini.text:
        return ini, [f"nothing to do: {old} has {len(there)} columns and this path already"]
    changes = list[str]()
    if new:
        changes.append(f"num-features {n_old} -> {len(there)}, new weights {b' '.join(new).decode()}")
    if new_path != old.path:
        changes.append(f"path {os.fsdecode(old.path)} -> {os.fsdecode(new_path)}")
    return Ini(after, ini.where), [f"{old}: {', '.join(changes)}", *hints(old, there.columns)]


def hints(feature: Feature, columns: Sequence[ScoreColumn]) -> list[str]:
    """Return the options of Moses' programs that depend on the number of columns.

    ``--range`` has bounds for each tuneable column (``scripts/training/mert-moses.pl``), so that random restarts may begin with
    a negative weight of a count. The binarizers rank by p(target | source), Moses' third column.
    """
    n, n_old = len(columns), feature.n_columns
    rank = min(2, n_old - 1)
    src_factors, tgt_factors = (feature.value(key).count(b",") + 1 for key in (b"input-factor", b"output-factor"))
    ranges = ["-1..1" if column.is_count(new=i >= n_old) else "0..1" for i, column in enumerate(columns)]
    bounds = ",".join(compress(ranges, feature.tuneable_columns + [True] * (n - n_old)))
    return [
        *([f"mert-moses.pl: --range={feature}:{bounds}"] if feature.is_tuneable else []),
        f"to binarize: processPhraseTableMin -nscores {n} -rankscore {rank}, CreateProbingPT --num-scores {n}, "
        f"CreateOnDiskPt {src_factors} {tgt_factors} {n} 100 {rank}",
    ]


def moses_ini(
    ini: Path, out: Path = "-", *, table: Path | None = None, lm: Path | None = None, feature: str | None = None,
    path: Path | None = None, weights: str = "small", columns: int | None = None, warn: Say = silent,
) -> list[str]:  # fmt: skip
    """Write a moses.ini for a table with added columns, or for a neural language model, as ``phrase-rescore moses-ini`` does.

    ``out`` may be ``ini``. ``table`` takes the place of the phrase table ``feature``, or of the only one, and ``path`` is
    written instead of its own. Paths are made absolute, since mert-moses.pl starts Moses in another folder.
    Returns the lines of the report, with the options of other programs; ``warn`` gets warnings.

    The sidecar of ``table`` says which columns are new; without it, the last ``columns`` are.

    Raises InputError as ``Ini.find_table``, ``Ini.check_used`` and ``TableColumns.read``, and for a table whose new columns are
    not known or not those that the ini lacks; OptionError for a binarized one without ``path``, and as ``new_weights``.
    """
    if weights not in ("small", "zero"):
        for number in weights.split(","):
            if not is_number(number.encode()):
                raise OptionError(f"--weights {weights}: write small, zero or numbers such as 0.05,-0.1")
    ini, out = os.fspath(ini), os.fspath(out)
    table, lm, path = (None if name is None else os.fspath(name) for name in (table, lm, path))
    if table is None and lm is None:
        raise OptionError("nothing to do; name a table with --table, or a language model with --lm")
    of_table = {"--feature": feature, "--path": path, "--columns": columns}
    if table is None and (given := [option for option, value in of_table.items() if value]):
        raise OptionError(f"{given[0]} is for a phrase table; name it with --table")
    for option, name, remedy in (("--table", None if path else table, "give it with --path"), ("--lm", lm, "name a file")):
        if name is not None and is_stream(name):
            raise OptionError(f"{option} {name} has no name to write into the ini; {remedy}")
    check_apart([("INI", ini), ("--table", table)], [])
    edited, report = Ini.read(ini), list[str]()
    if table is not None:
        edited, report = _for_table(edited, table, feature, path, weights, columns, warn)
    if lm is not None:
        if table is None and "," in weights:
            raise OptionError(f"--weights {weights}: a language model has one weight")
        weight = {"small": b"0.1", "zero": b"0"}.get(weights, b"0.1" if table is not None else weights.encode())
        lm_path = os.path.abspath(lm)
        edited, name = with_neural_lm(edited, os.fsencode(lm_path), _order_of(lm), weight)
        report.append(f"{name}: a feature NeuralLM of {lm_path}, weight {weight.decode()}; Moses must be built --with-nplm")
    with atomic_output(out) as output:
        output.write(edited.text)
    return report


def _order_of(path: str) -> int:
    """Return the order of the model in a file of NPLM. Raises InputError for another file."""
    with open_plain(path) as stream:
        head = b"".join(islice(read_rows(stream), 9))
    if not (found := re.match(rb"\\config\n(?:.*\n){,7}?ngram_size (\d{1,3})(?:\n|\Z)", head)):
        raise InputError(path, "not a model of NPLM", "pass the file that export-lm wrote")
    return int(found[1])


def with_neural_lm(ini: Ini, path: bytes, order: int, weight: bytes) -> tuple[Ini, str]:
    """Return the ini with a feature NeuralLM and its weight at the ends, and its name. Raises InputError, OptionError."""
    _check_path("--lm", path)
    for other in ini.features:
        if other.implementation == b"NeuralLM" and os.path.realpath(other.path) == os.path.realpath(path):
            raise ini.error(f"{other} has this language model already", "name another with --lm", other.line)
    taken = {feature.name for feature in ini.features}
    name = next(name for n in count() if (name := b"CSLM%d" % n) not in taken)
    feature = b"NeuralLM factor=0 name=%b order=%d path=%b" % (name, order, path)
    for section, text in ((b"feature", feature), (b"weight", b"%b= %b" % (name, weight))):
        if not (there := ini.lines_in(section)):
            raise ini.error(f"no [{printable(section)}] in it", "pass the moses.ini of train-model.perl or mert-moses.pl")
        rows, after = ini.text.split(b"\n"), there[-1].number
        end = b"\r" if after < len(rows) and rows[after - 1].endswith(b"\r") else b""
        rows[after:after] = [text + end] if after < len(rows) else [text, b""]
        ini = Ini(b"\n".join(rows), ini.where)
    return ini, name.decode()
