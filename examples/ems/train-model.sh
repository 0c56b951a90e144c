#!/usr/bin/env bash
# train-model.perl for an EMS experiment whose phrase tables are annotated:
#
#   [TRAINING]
#   script = "/where/examples/ems/train-model.sh /where/mosesdecoder/scripts/training/train-model.perl"
#
# EMS lets train-model.perl write an ini three times: in create-config and in the filter steps of TUNING and EVALUATION
# (scripts/ems/experiment.perl), with the number of columns that follows from score-settings. Here it gets the table's own.
set -euo pipefail -o noglob

if (($# < 1)); then
    echo "usage: train-model.sh TRAIN_MODEL [ARGUMENT]..." >&2
    exit 2
fi
"$@"

ini=
for ((i = 2; i < $#; i++)); do
    if [[ ${!i} == -config || ${!i} == --config ]]; then
        next=$((i + 1))
        ini=${!next}
    fi
done
if [[ -z $ini || ! -s $ini ]]; then exit 0; fi # a step that writes no ini

# The tables of the ini, as name and path; only those that are text. EMS names a table without .gz, and the filter finds it.
sed -n 's/#.*//; /^PhraseDictionaryMemory /p' "$ini" | while read -r line; do
    name= path= scores=
    for word in $line; do
        case $word in
            name=*) name=${word#name=} ;;
            path=*) path=${word#path=} ;;
            num-features=*) scores=${word#num-features=} ;;
        esac
    done
    table=$path
    if [[ ! -e $table ]]; then table=$path.gz; fi
    case $path in *glue-grammar*) continue ;; esac
    if [[ ! -e $table ]]; then continue; fi
    columns=$({ gzip -cdf "$table" || true; } 2> /dev/null | awk -F '[|][|][|]' '{ print split($3, score, " "); exit }')
    if [[ $columns != "$scores" ]]; then # a table that is not annotated stays as it is
        phrase-rescore moses-ini "$ini" --feature "$name" --table "$table" --path "$path" --columns $((columns - scores)) -q --overwrite -o "$ini"
    fi
done
