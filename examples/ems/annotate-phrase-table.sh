#!/usr/bin/env bash
# Annotates the phrase tables of an EMS experiment, as the step that EMS has for pruning them:
#
#   [TRAINING]
#   custom-phrase-table-pruning = "/where/examples/ems/annotate-phrase-table.sh -m /models/forward"
#
# EMS appends two stems (scripts/ems/experiment.meta): IN.gz is read, OUT.gz is made. All before them are options of
# phrase-rescore annotate. A factored model has tables IN.0-0.gz, IN.1-1.gz and so on, and each needs models of its own:
# of -m DIR it gets DIR.0-0, DIR.1-1 and so on. One that has none is passed on as it is.
set -euo pipefail

stop() {
    printf 'annotate-phrase-table.sh: %s\n' "$1" >&2
    exit 1
}

if (($# < 2)); then
    echo "usage: annotate-phrase-table.sh [OPTION OF phrase-rescore annotate]... IN OUT  (stems: IN.gz, OUT.gz)" >&2
    exit 2
fi
in=${*: -2:1}
out=${*: -1}
options=("${@:1:$#-2}")
[[ " ${options[*]-} " == *' -m '* ]] || stop "name the model: -m DIR before the two stems"

# Sets the array used: the options, with DIR.FACTORS for every -m DIR. Fails where such a model is not there.
with_models_of() { # FACTORS
    local i
    used=("${options[@]}")
    for i in "${!used[@]}"; do
        if ((i > 0)) && [[ ${used[i - 1]} == -m ]]; then
            used[i]+=.$1
            [[ -d ${used[i]} ]] || return 1
        fi
    done
}

if [[ -e $in.gz ]]; then
    exec phrase-rescore annotate "$in.gz" "${options[@]}" --overwrite -o "$out.gz"
fi

annotated=0
for table in "$in".*-*.gz; do
    [[ -e $table ]] || stop "$in.gz: no such table, and no factored one such as $in.0-0.gz"
    factors=${table#"$in".}
    factors=${factors%.gz}
    if [[ ! $factors =~ ^[0-9]+(,[0-9]+)*-[0-9]+(,[0-9]+)*$ ]]; then
        continue # such as IN.half-f2e.gz
    elif with_models_of "$factors"; then
        phrase-rescore annotate "$table" "${used[@]}" --overwrite -o "$out.$factors.gz"
        annotated=$((annotated + 1))
    else
        printf 'annotate-phrase-table.sh: %s: passed on as it is, there is no model for factors %s\n' "$table" "$factors" >&2
        ln -f "$table" "$out.$factors.gz" 2> /dev/null || cp "$table" "$out.$factors.gz"
    fi
done
((annotated)) || stop "$in: no model for any of its factored tables; with -m DIR they are DIR.0-0 and so on"
