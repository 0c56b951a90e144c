"""Rewrite a ``moses.ini`` for a table with added columns, or for a neural language model; every other byte stays."""

import os
import re
import sys
from collections.abc import Callable, Sequence
from itertools import count

from phrase_rescore.errors import InputError, OptionError, counted, printable, shown
from phrase_rescore.files.inputs import display_name
from phrase_rescore.files.outputs import atomic_output
from phrase_rescore.moses.columns import RANGE_ROWS, ScoreColumn, TableColumns, check_compression
from phrase_rescore.moses.ini import BINARIZED_TABLES, Feature, find_table, read_features, read_ini, read_lines
from phrase_rescore.moses.table import BLANKS_AND_CR
from phrase_rescore.ranges import Range

_UNFILTERED = (b"PhraseDictionaryCompact", b"ProbingPT")  # filter-model-given-input.pl passes their lines through
_WEIGHTS = Range(-1e6, 1e6)


def check_weights(how: str) -> list[str]:
    """Return the numbers of ``--weights``, none for ``small`` and ``zero``. Raises OptionError for anything else."""
    if how in ("small", "zero"):
        return []
    for number in (numbers := how.split(",")):
        try:
            _WEIGHTS.read(number)
        except OptionError as error:
            raise OptionError(f"{error}; write small, zero or numbers such as 0.05,-0.1") from None
    return numbers


def new_weights(how: str, added: Sequence[ScoreColumn]) -> list[bytes]:
    """Choose a weight for each added column: ``small``, ``zero``, or numbers between commas, taken as they are.

    Small weights are 0.01, and -0.01 for counts: a tuned system stays nearly where it was. Raises OptionError for other texts.
    """
    if how == "small":
        return [b"-0.01" if column.is_count(added=True) else b"0.01" for column in added]
    if how == "zero":
        return [b"0" for _ in added]
    numbers = check_weights(how)
    if len(numbers) != len(added):
        raise OptionError(f"--weights {how}: the number of weights is {len(numbers)}, that of added columns {len(added)}")
    return [number.encode() for number in numbers]


def with_table(ini: bytes, feature: Feature, path: bytes, n_columns: int, weights: Sequence[bytes]) -> bytes:
    """Write the ini with another table, of ``n_columns`` columns, and ``weights`` for those added; every other byte stays.

    ``tuneable-components`` gets a 1 for each of them. Raises OptionError for a path that cannot stand in an ini.
    """
    _check_path("--table or --path", path)
    rows, place = ini.split(b"\n"), feature.line.number - 1
    if n_columns != feature.n_columns:
        rows[place] = _with_value(rows[place], b"num-features", b"%d" % n_columns)
    if path != feature.path:
        rows[place] = _with_value(rows[place], b"path", path)
    if components := feature.value(b"tuneable-components"):
        rows[place] = _with_value(rows[place], b"tuneable-components", components + b",1" * len(weights))
    values, rest = _cut(rows[feature.weights_line - 1])
    rows[feature.weights_line - 1] = b"".join((values, *(b" " + weight for weight in weights), rest))
    return b"\n".join(rows)


def _check_path(option: str, path: bytes) -> None:
    if not path or re.search(rb"[\s#]", path):
        raise OptionError(f"{option} {shown(path)}: no blank and no '#' can stand in an ini; name the file without")


def _cut(row: bytes) -> tuple[bytes, bytes]:
    """Cut a line of an ini after its last word, before blanks and a comment."""
    end = len(row.partition(b"#")[0].rstrip(BLANKS_AND_CR))
    return row[:end], row[end:]


def _with_value(row: bytes, key: bytes, value: bytes) -> bytes:
    """Write a line of ``[feature]`` with the value of a key, which is added after the last word if it is not there."""
    values, rest = _cut(row)
    form, new = rb"(?<=[ \t])" + re.escape(key) + rb"=[^ \t]*", key + b"=" + value
    changed, there = re.subn(form, lambda match: new, values)
    return (changed if there else values + b" " + new) + rest


def _for_table(ini: bytes, table: str, name: str | None, path: str | None, how: str, where: str) -> tuple[bytes, list[str]]:
    """Return the ini with ``table`` in place of the phrase table ``name``, or the only one, and what is to be said of it."""
    old = find_table(ini, None if name is None else os.fsencode(name), where)
    if path is None:
        if old.implementation in BINARIZED_TABLES:
            kind = old.implementation.decode()
            raise OptionError(f"{old} is {kind}, a binarized table: give the one made of {table} with --path")
        check_compression(table)
    there = TableColumns.read(table, RANGE_ROWS, loadable=True)
    n, n_old = len(there), old.n_columns
    if n < n_old:
        found = f"{counted(n, 'score column')}, where {old} has num-features={n_old}"
        raise InputError(display_name(table), found, "pass the table that annotate wrote")
    values, new_path = new_weights(how, there.columns[n_old:]), os.fsencode(table if path is None else path)
    after = with_table(ini, old, new_path, n, values)
    said = [f"warning: {where}: {warning}" for warning in warnings(ini, old, new_path)]
    if after == ini:
        return after, [*said, f"nothing to do: {old} has {n} columns and this path already"]
    changes = [f"num-features {n_old} -> {n}, new weights {b' '.join(values).decode()}"] if n > n_old else []
    if new_path != old.path:
        changes.append(f"path {os.fsdecode(old.path)} -> {os.fsdecode(new_path)}")
    return after, [*said, f"{old}: {', '.join(changes)}", *hints(old, there.columns)]


def rewrite_ini(
    ini: str, out: str, table: str | None, lm: str | None, name: str | None, path: str | None, weights: str,
    read_order: Callable[[str], int],
) -> list[str]:  # fmt: skip
    """Write the ini for a table and a language model; return what is to be said of it. ``out`` may be ``ini``.

    ``table`` takes the place of the phrase table ``name``, or of the only one, and ``path`` is written instead of its own.
    ``read_order`` reads the order of a model in NPLM's format. Raises InputError as ``find_table`` and ``TableColumns.read``,
    and for fewer columns than before; OptionError for a binarized table without ``path``, and as ``new_weights``.
    """
    if table is None and lm is None:
        raise OptionError("nothing to do; name a table with --table, or a language model with --lm")
    if table is None and (name or path):
        raise OptionError(f"{'--feature' if name else '--path'} is of the phrase table; name it with --table")
    if table == "-" and path is None:
        raise OptionError("--table - has no name to write into the ini; give it with --path")
    if ini == table == "-":
        raise OptionError("ini and table cannot both be standard input; name one of them")
    text, where, said = read_ini(ini), display_name(ini), list[str]()
    if table is not None:
        text, said = _for_table(text, table, name, path, weights, where)
    if lm is not None:
        if table is None and weights not in ("small", "zero") and "," in weights:
            raise OptionError(f"--weights {weights}: a language model has one weight")
        weight = {"small": b"0.1", "zero": b"0"}.get(weights, b"0.1" if table is not None else weights.encode())
        text, feature = with_neural_lm(text, os.fsencode(lm), read_order(lm), weight, where)
        added = f"a feature NeuralLM of {lm}, weight {weight.decode()}"
        said.append(f"{feature.decode()}: {added}; Moses must be built --with-nplm")
    if out == "-":
        sys.stdout.buffer.write(text)
        sys.stdout.buffer.flush()
        return said
    with atomic_output(out) as output:
        output.write(text)
    return said


def with_neural_lm(ini: bytes, path: bytes, order: int, weight: bytes, where: str = "moses.ini") -> tuple[bytes, bytes]:
    """Return the ini with a feature NeuralLM after the last one, and its weight after the last; and the feature's name.

    Raises InputError for an ini without features or weights, OptionError for a path that cannot stand in an ini.
    """
    _check_path("--lm", path)
    taken = {feature.name for feature in read_features(list(read_lines(ini)), where)}
    name = next(name for n in count() if (name := b"CSLM%d" % n) not in taken)
    added = {
        b"feature": b"NeuralLM factor=0 name=%b order=%d path=%b" % (name, order, path),
        b"weight": b"%b= %b" % (name, weight),
    }
    for section, text in added.items():
        after = max((line.number for line in read_lines(ini) if line.section == section), default=0)
        if not after:
            hint = "pass the moses.ini of train-model.perl or mert-moses.pl"
            raise InputError(where, f"no [{printable(section)}] in it", hint)
        rows = ini.split(b"\n")
        end = b"\r" if after < len(rows) and rows[after - 1].endswith(b"\r") else b""
        rows[after:after] = [text + end] if after < len(rows) else [text, b""]
        ini = b"\n".join(rows)
    return ini, name


def warnings(ini: bytes, feature: Feature, path: bytes) -> list[str]:
    """Name what Moses loads, but its scripts misread."""
    found = []
    if not re.fullmatch(rb"[A-Za-z][A-Za-z0-9]*", feature.name):
        fails = "mert-moses.pl fails at it in n-best lists; rename it in [feature] and [weight]"
        found.append(f"the name {feature} is not a letter, then letters and digits: {fails}")
    if feature.implementation not in _UNFILTERED:
        line, script = f"line {feature.line.number}", "filter-model-given-input.pl"
        row, _ = _cut(ini.split(b"\n")[feature.line.number - 1])
        if b"\t" in row or b"  " in row or row.startswith(b" "):
            found.append(f"{line}: {script} splits it at single blanks; take out tabs, doubled and leading blanks")
        if b"=" in path:
            found.append(f"{line}: {script} cuts the path {printable(path)} at '='; give the table another name")
    return found


def hints(feature: Feature, columns: Sequence[ScoreColumn]) -> list[str]:
    """Tell what else must know the number of columns, as the options of Moses' programs.

    ``--range`` has bounds for each tuneable column, 0..1 without it (``scripts/training/mert-moses.pl``). The binarizers rank
    by p(target | source), which train-model.perl writes as the third column.
    """
    n, n_old = len(columns), feature.n_columns
    ranges = ",".join(
        "-1..1" if column.is_count(added=i >= n_old) else "0..1" for i, column in enumerate(columns) if feature.is_tuneable(i)
    )
    rank = min(2, n_old - 1)
    src_factors, tgt_factors = (feature.value(key).count(b",") + 1 for key in (b"input-factor", b"output-factor"))
    on_disk = f"CreateOnDiskPt {src_factors} {tgt_factors} {n} 100 {rank}"
    return [
        f"mert-moses.pl: --range={feature}:{ranges} (it bounds where random restarts begin, not the weights)",
        "mert-moses.pl: delete features.list from its working directory, or it ends with 'Mismatched lambdas'",
        f"processPhraseTableMin: -nscores {n} -rankscore {rank}; "
        "-quantize N if it grows too large, as it keeps every distinct value",
        f"CreateProbingPT: --num-scores {n}; it takes 4 without, and checks nothing",
        f"{on_disk} TABLE DIRECTORY; it checks nothing",
        f"filter-model-given-input.pl: -Binarizer '{on_disk}' or 'CreateProbingPT --num-scores {n}'; it passes them no number",
    ]
