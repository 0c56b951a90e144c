"""Where a phrase table of an ini is used: steps of ``[mapping]``, groups of tables, features that read its scores, programs."""

import re
from collections.abc import Sequence
from dataclasses import replace
from itertools import accumulate, compress, product
from typing import NamedTuple

from phrase_rescore.messages import counted, printable
from phrase_rescore.moses.columns import ScoreColumn
from phrase_rescore.moses.ini import GROUP, Feature, Ini

_TABLES = re.compile(rb"PhraseDictionary.*|ProbingPT|RuleTable|Mmsapt|ExamplePT", re.DOTALL)
READERS = {  # keys of features that name tables whose scores they read, and why there must be no more of them
    b"components": "reads only the first scores of {}: new columns would have no effect",  # PhraseDictionaryMultiModel.cpp
    b"target-table": "reads only the first scores of {}: new columns would have no effect",
    b"leave-one-out-from": "stops unless {} has 4 scores",  # moses/FF/VW/VW.cpp
    b"use": "gives the scores of {} to a classifier trained without new columns",
}


class InGroup(NamedTuple):
    """A group of tables and the places among its scores, from 0, where those of a member begin."""

    group: Feature
    starts: list[int]


def check_group(group: Feature, ini: Ini) -> None:
    """Raise InputError for a group whose scores are not those of its members (``PhraseDictionaryGroup::Load``)."""
    by_name = {feature.name: feature for feature in ini.features}
    if missing := [name for name in group.members if name not in by_name]:
        raise ini.error(f"{group} has no member {printable(missing[0])}", "correct members=", group.line)
    members = len(group.members)
    own = {b"phrase-counts": members, b"word-counts": members, b"model-bitmap-counts": (1 << min(members, 64)) - 1}
    n = sum(by_name[name].n_columns for name in group.members) + sum(counts for key, counts in own.items() if group.is_on(key))
    if n != group.n_columns:
        found = f"num-features={group.n_columns} of {group}, whose members have {n} scores with its own counts"
        raise ini.error(found, "correct it and the number of weights, or give each member its num-features=", group.line)
    if (defaults := group.value(b"default-scores")) and defaults.count(b",") + 1 != n:
        found = f"{counted(defaults.count(b',') + 1, 'value')} in default-scores of {group}, which has {n} scores"
        raise ini.error(found, "Moses stops there: give one for each score", group.line)


def uses_of(ini: Ini, table: Feature, n_columns: int) -> tuple[list[InGroup], bool]:
    """Find the groups that a table is a member of, and whether ``[mapping]`` uses the table itself.

    Raises InputError if ``n_columns``, more than it has, would have no effect or do harm: Moses uses neither the table nor a
    group, another feature reads their scores, a group is a member of another, or its members must have equally many scores.
    """
    groups = [feature for feature in ini.features if feature.implementation == GROUP and table.name in feature.members]
    for other, read in product(ini.features, [table, *groups]):
        for key, what in READERS.items():
            of_all = key == b"use" and other.implementation == b"VWFeatureTargetPhraseScores" and not other.value(key)
            if of_all or read.name in other.value(key).split(b","):
                hint = "add columns only to tables that [mapping] or a PhraseDictionaryGroup names"
                raise ini.error(f"{other} {what.format(read)}", hint, other.line)
        if read is not table and read.name in other.members:
            hint = "moses-ini cannot change a group of groups; change them by hand"
            raise ini.error(f"{read} is a member of {other}", hint, other.line)
    used = mapped(ini)
    if used is not None and not used & {table.name, *(group.name for group in groups)}:
        raise ini.error(f"no line of [mapping] uses {table}", "add one, or name another table with --feature", table.line)
    uses = [_in_group(ini, table, n_columns, group) for group in groups]
    return uses, not groups or table.name in (used or ())


def _in_group(ini: Ini, table: Feature, n_columns: int, group: Feature) -> InGroup:
    check_group(group, ini)
    if [feature.name for feature in ini.features].count(group.name) > 1:
        raise ini.error(f"two features are named {group}", "give each another name=", group.line)
    sizes = {feature.name: feature.n_columns for feature in ini.features}
    after = {n_columns if name == table.name else sizes[name] for name in group.members}
    if len(after) > 1 and group.is_on(b"default-average-others"):
        found = f"{group} has default-average-others: all its members must have as many scores as {table} would have"
        raise ini.error(found, "take that out, run moses-ini for each member, then put it back", group.line)
    ends = accumulate(sizes[name] for name in group.members)
    starts = [end - sizes[name] for name, end in zip(group.members, ends, strict=True) if name == table.name]
    return InGroup(replace(group, weights=ini.weight_lines(group)), starts)


def mapped(ini: Ini) -> set[bytes] | None:
    """Name the tables that ``[mapping]`` uses; None without one, as for a chart decoder, which uses all of them."""
    steps = [line.words for line in ini.lines_in(b"mapping")]
    known = all(len(step) in (2, 3) and step[-2] in (b"T", b"G") and re.fullmatch(rb"\d{1,9}", step[-1]) for step in steps)
    if ini.search_algorithm not in (b"0", b"1", b"4") or not (steps and known):
        return None
    chosen = {int(step[-1]) for step in steps if step[-2] == b"T"}
    return {table.name for number, table in enumerate(_tables(ini)) if number in chosen}


def _tables(ini: Ini) -> list[Feature]:
    """List all that Moses counts as phrase tables, groups too."""
    return [feature for feature in ini.features if _TABLES.fullmatch(feature.implementation)]


def scores_markup(ini: Ini, table: Feature) -> bool:
    """Return whether Moses divides the probabilities of marked translations among a table's scores (``SetXMLScore``)."""
    marked = any(line.words[0] in (b"exclusive", b"inclusive") for line in ini.lines_in(b"xml-input", b"xi"))
    return marked and _tables(ini)[0].name == table.name


def _ranges(tuned: Feature, starts: Sequence[int], columns: Sequence[ScoreColumn], n_old: int) -> str:
    """Write the bounds of each tuneable column of a table, or of a group where its scores begin at the places ``starts``."""
    ranges = ["-1..1" if column.is_count(new=i >= n_old) else "0..1" for i, column in enumerate(columns)]
    bounds, tuneable = ["0..1"] * tuned.n_columns, tuned.tuneable_columns
    for start in reversed(starts):
        bounds[start : start + n_old] = ranges
        tuneable[start + n_old : start + n_old] = [True] * (len(columns) - n_old)
    return ",".join(compress(bounds, tuneable))


def hints(feature: Feature, columns: Sequence[ScoreColumn], tuned: Sequence[InGroup]) -> list[str]:
    """Return the options of Moses' programs that depend on the number of columns.

    ``tuned``: the features that have the weights, and where the columns begin in each. ``--range`` has bounds for each tuneable
    column, else 0..1 (``scripts/training/mert-moses.pl``). The binarizers rank by p(target | source), Moses' third column.
    """
    n, n_old = len(columns), feature.n_columns
    rank = min(2, n_old - 1)
    src_factors, tgt_factors = (feature.value(key).count(b",") + 1 for key in (b"input-factor", b"output-factor"))
    on_disk = f"CreateOnDiskPt {src_factors} {tgt_factors} {n} 100 {rank}"
    bounded = " ".join(f"--range={of}:{_ranges(of, starts, columns, n_old)}" for of, starts in tuned if of.is_tuneable)
    mert = [
        f"mert-moses.pl: {bounded} (so that random restarts may begin with a negative weight of the count)",
        "mert-moses.pl: delete features.list from its working directory, else it stops with 'Mismatched lambdas'",
    ]
    return [
        *(mert if bounded else []),
        f"processPhraseTableMin: -nscores {n} -rankscore {rank}; if it gets too large add -quantize N",
        f"CreateProbingPT: --num-scores {n}, else it takes 4 and writes garbage",
        f"{on_disk} TABLE DIRECTORY, else it writes garbage",
        f"filter-model-given-input.pl: -Binarizer '{on_disk}' or 'CreateProbingPT --num-scores {n}'",
    ]
