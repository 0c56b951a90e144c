"""Rewrite a ``moses.ini`` for a table with added columns, or for a neural language model; every other byte stays."""

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import count, islice, pairwise
from typing import TypeVar

from phrase_rescore.errors import InputError, OptionError
from phrase_rescore.files.inputs import display_name, open_plain, read_rows
from phrase_rescore.files.outputs import atomic_output
from phrase_rescore.files.paths import Path, check_apart
from phrase_rescore.messages import counted, printable, shown
from phrase_rescore.moses.columns import RANGE_ROWS, ScoreColumn, TableColumns, check_compression
from phrase_rescore.moses.ini import BINARIZED_TABLES, GROUP, Feature, Ini
from phrase_rescore.moses.ini_uses import InGroup, hints, scores_markup, uses_of
from phrase_rescore.moses.sidecar import sidecar_path
from phrase_rescore.moses.table import BLANKS_AND_CR
from phrase_rescore.progress import Say, silent
from phrase_rescore.ranges import Range

_UNFILTERED = (b"PhraseDictionaryCompact", b"ProbingPT", GROUP)  # filter-model-given-input.pl passes their lines through
T = TypeVar("T")
_WORDS = re.compile(rb"[^ \t]+")


def check_weights(how: str) -> list[str]:
    """Return the numbers of ``--weights``, none for ``small`` and ``zero``. Raises OptionError for anything else."""
    if how in ("small", "zero"):
        return []
    for number in (numbers := how.split(",")):
        try:
            Range(-1e6, 1e6).read(number)
        except OptionError as error:
            raise OptionError(f"{error}; write small, zero or numbers such as 0.05,-0.1") from None
    return numbers


def new_weights(how: str, added: Sequence[ScoreColumn]) -> list[bytes]:
    """Choose weights of added columns: ``small`` (0.04; 0 for counts), ``zero``, or numbers. Raises OptionError."""
    if how in ("small", "zero"):
        return [b"0.04" if how == "small" and not column.is_count(new=True) else b"0" for column in added]
    numbers = check_weights(how)
    if len(numbers) != len(added):
        found = f"--weights {how} is {counted(len(numbers), 'weight')}; the table has {counted(len(added), 'new column')}"
        raise OptionError(f"{found}; give a weight for each")
    return [number.encode() for number in numbers]


def with_table(ini: bytes, feature: Feature, path: bytes, n_columns: int, weights: Sequence[bytes]) -> bytes:
    """Write the ini with another table and ``weights`` of added columns; all else stays. Raises OptionError for a bad path."""
    _check_path("--table or --path", path)
    if n_columns != feature.n_columns:
        ini = with_columns(ini, feature, [feature.n_columns], weights)
    return ini if path == feature.path else _with_values(ini, feature, {b"path": path})


def with_columns(
    ini: bytes, feature: Feature, places: Sequence[int], weights: Sequence[bytes], defaults: Sequence[bytes] = ()
) -> bytes:
    """Write the ini with new columns of a feature, as many as ``weights``, at each of the ascending places.

    ``tuneable-components`` gets a 1 for each, as Moses wants one word for every column; ``default-scores`` gets ``defaults``.
    """
    values = {b"num-features": b"%d" % (feature.n_columns + len(places) * len(weights))}
    for key, new in ((b"tuneable-components", [b"1"] * len(weights)), (b"default-scores", defaults)):
        if value := feature.value(key):
            values[key] = b",".join(_widened(value.split(b","), places, new))
    rows = _with_values(ini, feature, values).split(b"\n")
    for line in feature.weights:
        row, rest = _cut(rows[line.number - 1])
        begin = len(row) - len(row.lstrip(BLANKS_AND_CR))
        ends = (word.end() for word in _WORDS.finditer(row, begin))
        pieces = [row[begin:end] for begin, end in pairwise([0, *ends])]
        rows[line.number - 1] = b"".join(_widened(pieces, [place + 1 for place in places], [b" " + w for w in weights])) + rest
    return b"\n".join(rows)


def _widened(values: Sequence[T], places: Sequence[int], new: Sequence[T]) -> list[T]:
    """Put new values in at each of the ascending places."""
    widened = list(values)
    for place in reversed(places):
        widened[place:place] = new
    return widened


def _with_values(ini: bytes, feature: Feature, values: Mapping[bytes, bytes]) -> bytes:
    """Write the ini with other values of a feature, each in the line that sets it, or at the end of the feature's line."""
    rows = ini.split(b"\n")
    for key, value in values.items():
        place = feature.places.get(key, feature.line.number) - 1
        row, rest = _cut(rows[place])
        found = re.search(rb"[ \t]" + re.escape(key) + rb"=[^ \t]*", row)
        begin, end = (found.start() + 1, found.end()) if found else (len(row), len(row))
        rows[place] = b"%b%b%b=%b%b%b" % (row[:begin], b"" if found else b" ", key, value, row[end:], rest)
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
        _check_described(there, new, before, hint)
    elif last is None:
        found = f"no {sidecar_path(name)} says which of its {counted(n, 'score column')} are new"
        raise InputError(name, found, "put it beside the table, or give --columns K if the last K are new")
    elif len(new) not in (0, last):
        found = f"{counted(n, 'score column')} and --columns {last}, but {before}"
        raise InputError(name, found, f"give --columns {len(new)} if the last {len(new)} are new; else {hint}")


def _check_described(there: TableColumns, new: Sequence[ScoreColumn], before: str, hint: str) -> None:
    """Raise InputError unless the sidecar names all new columns, and the column before them is not of the same model."""
    name = display_name(there.table)
    if foreign := [column.number for column in new if not column.added]:
        raise InputError(name, f"column {foreign[0]} is not one that {sidecar_path(name)} names, but {before}", hint)
    if not new:
        return
    first, last_old = new[0], there.columns[new[0].number - 2]
    if first.added and last_old.added and first.added.model == last_old.added.model:
        raise InputError(name, f"column {last_old.number} is a model's, as column {first.number}, but {before}", hint)


@dataclass(frozen=True)
class _Exchange:
    """A table takes the place of a phrase table of an ini."""

    old: Feature
    there: TableColumns
    path: bytes
    values: list[bytes]  # the weights of its new columns
    groups: list[InGroup]  # that the table is a member of
    alone: bool  # whether Moses uses the table itself

    @property
    def own_values(self) -> list[bytes]:
        """The weights in the table's own line; those of a group's member only choose its best pairs."""
        return self.values if self.alone else [b"0"] * len(self.values)

    @property
    def tuned(self) -> list[InGroup]:
        """The features whose weights are tuned, and where the table's columns begin in each."""
        return [*([InGroup(self.old, [0])] if self.alone else []), *self.groups]

    def made_in(self, ini: bytes) -> bytes:
        """Return the ini with the new table."""
        n_old = self.old.n_columns
        ini = with_table(ini, self.old, self.path, len(self.there), self.own_values)
        for group, starts in self.groups:
            defaults = _defaults(group, starts[0], self.there, n_old)
            ini = with_columns(ini, group, [start + n_old for start in starts], self.values, defaults)
        return ini

    def warnings(self, ini: Ini) -> Iterator[str]:
        """Yield what Moses or its scripts make of the table otherwise than one expects."""
        for feature in (self.old, *(group for group, _ in self.groups)):
            yield from warnings(ini.text, feature, self.path)
        if not self.values:
            return
        for feature, _ in self.tuned:
            if not feature.is_tuneable:
                yield f"{feature} has tuneable=false: tuning will not move the new weights; take it out, or set them yourself"
        if scores_markup(ini, self.old):
            why = f"Moses divides them among all {len(self.there)} columns"
            yield f"[xml-input]: the probabilities of marked translations weigh differently than before: {why}"

    def report(self) -> Iterator[str]:
        """Yield what changes."""
        n, n_old, changes = len(self.there), self.old.n_columns, list[str]()
        if n > n_old:
            changes.append(f"num-features {n_old} -> {n}, new weights {b' '.join(self.own_values).decode()}")
        if self.path != self.old.path:
            changes.append(f"path {os.fsdecode(self.old.path)} -> {os.fsdecode(self.path)}")
        yield f"{self.old}: {', '.join(changes)}"
        for group, starts in self.groups:
            weights = f"new weights {b' '.join(self.values).decode()} after those of {self.old}"
            yield f"{group}: num-features {group.n_columns} -> {group.n_columns + len(starts) * len(self.values)}, {weights}"


def _for_table(
    ini: Ini, table: str, name: str | None, path: str | None, how: str, last: int | None, keep_relative: bool, warn: Say
) -> tuple[Ini, list[str]]:
    """Return the ini with ``table`` in place of the phrase table ``name``, or the only one, and the lines of the report."""
    old = ini.find_table(None if name is None else os.fsencode(name))
    if path is None:
        if old.implementation in BINARIZED_TABLES:
            kind = old.implementation.decode()
            raise OptionError(f"{old} is {kind}, a binarized table: give the one made of {table} with --path")
        check_compression(table)
    there = TableColumns.read(table, RANGE_ROWS, loadable=True)
    _check_new(there, old, last, ini.where)
    values = new_weights(how, there.columns[old.n_columns :])
    named = table if path is None else path
    new_path = os.fsencode(named if keep_relative else os.path.abspath(named))
    groups, alone = uses_of(ini, old, len(there)) if values else ([], True)
    exchange = _Exchange(old, there, new_path, values, groups, alone)
    after = exchange.made_in(ini.text)
    for warning in exchange.warnings(ini):
        warn(f"{ini.where}: {warning}")
    if after == ini.text:
        return ini, [f"nothing to do: {old} has {len(there)} columns and this path already"]
    relative = [] if keep_relative else _relative_paths(ini, old)
    return Ini(after, ini.where), [*exchange.report(), *relative, *hints(old, there.columns, exchange.tuned)]


def _defaults(group: Feature, start: int, there: TableColumns, n_old: int) -> list[bytes]:
    """Choose what a group takes for a pair that the table lacks: its default of p(target | source), and no unknown word."""
    if not (defaults := group.value(b"default-scores")):
        return []
    usual = defaults.split(b",")[start + min(2, n_old - 1)]
    return [b"0" if column.is_count(new=True) else usual for column in there.columns[n_old:]]


def moses_ini(
    ini: Path, out: Path = "-", *, table: Path | None = None, lm: Path | None = None, feature: str | None = None,
    path: Path | None = None, weights: str = "small", columns: int | None = None, keep_relative: bool = False,
    warn: Say = silent,
) -> list[str]:  # fmt: skip
    """Write a moses.ini for a table with added columns, or for a neural language model, as ``phrase-rescore moses-ini`` does.

    ``out`` may be ``ini``. ``table`` takes the place of the phrase table ``feature``, or of the only one, and ``path`` is
    written instead of its own. Paths are made absolute, since mert-moses.pl starts Moses in another folder, unless
    ``keep_relative``. Returns the lines of the report, with the options of other programs; ``warn`` gets warnings.

    The sidecar of ``table`` says which columns are new; without it, the last ``columns`` are.

    Raises InputError as ``find_table``, ``uses_of`` and ``TableColumns.read``, and for a table whose new columns are not known
    or not those that the ini lacks; OptionError for a binarized one without ``path``, and as ``new_weights``.
    """
    ini, out = os.fspath(ini), os.fspath(out)
    table, lm, path = (None if name is None else os.fspath(name) for name in (table, lm, path))
    if table is None and lm is None:
        raise OptionError("nothing to do; name a table with --table, or a language model with --lm")
    of_table = {"--feature": feature, "--path": path, "--columns": columns}
    if table is None and (given := [option for option, value in of_table.items() if value]):
        raise OptionError(f"{given[0]} is for a phrase table; name it with --table")
    if table == "-" and path is None:
        raise OptionError("--table - has no name to write into the ini; give it with --path")
    check_apart([("INI", ini), ("--table", table)], [])
    edited, report = Ini.read(ini), list[str]()
    if table is not None:
        edited, report = _for_table(edited, table, feature, path, weights, columns, keep_relative, warn)
    if lm is not None:
        if table is None and "," in weights:
            raise OptionError(f"--weights {weights}: a language model has one weight")
        weight = {"small": b"0.1", "zero": b"0"}.get(weights, b"0.1" if table is not None else weights.encode())
        lm_path = lm if keep_relative else os.path.abspath(lm)
        edited, name = with_neural_lm(edited, os.fsencode(lm_path), _order_of(lm), weight)
        if edited.lines_in(b"alternate-weight-setting"):
            found = f"[alternate-weight-setting] has no weight of {name}, so it is 0 there"
            warn(f"{edited.where}: {found}; add '{name}= {weight.decode()}' to each")
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


def warnings(ini: bytes, feature: Feature, path: bytes) -> Iterator[str]:
    """Yield what Moses loads but its scripts misread."""
    if not re.fullmatch(rb"[A-Za-z][A-Za-z0-9]*", feature.name):
        fails = "mert-moses.pl fails at it in n-best lists; rename it in [feature] and [weight]"
        yield f"the name {feature} is not a letter, then letters and digits: {fails}"
    if feature.implementation not in _UNFILTERED:
        line, script = f"line {feature.line.number}", "filter-model-given-input.pl"
        row, _ = _cut(ini.split(b"\n")[feature.line.number - 1])
        if b"\t" in row or b"  " in row or row.startswith(b" "):
            yield f"{line}: {script} splits it at single blanks; take out tabs, doubled and leading blanks"
        if b"=" in path:
            yield f"{line}: {script} cuts the path {printable(path)} at '='; give the table another name"


def _relative_paths(ini: Ini, table: Feature) -> Iterator[str]:
    """Yield the features other than ``table`` whose file mert-moses.pl does not find."""
    for feature in ini.features:
        if feature.path and feature.name != table.name and not os.path.isabs(feature.path):
            path = printable(feature.path, 1000)
            yield f"mert-moses.pl: write the whole path of {feature} in place of {path}: it starts Moses in another folder"
