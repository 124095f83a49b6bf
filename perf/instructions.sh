#!/bin/sh
# Prints the instructions that one message costs, by callgrind: the same on every run and on a busy machine.
# Each scenario runs twice, with N and 2 N messages, and the difference is divided by N, so that start-up does not count.
# Usage: perf/instructions.sh [N]; needs valgrind.
set -eu

messages=${1:-64000}
cd "$(dirname "$0")/.."
cargo build --quiet --release -p doorbell-perf --bin instructions
program=${CARGO_TARGET_DIR:-target}/release/instructions

# instructions CHANNEL SCENARIO MESSAGES
instructions() {
    valgrind --tool=callgrind --callgrind-out-file=/dev/null "$program" "$@" 2>&1 |
        sed -n 's/.*Collected : *\([0-9]*\).*/\1/p'
}

# per_message CHANNEL SCENARIO
per_message() {
    once=$(instructions "$1" "$2" "$messages")
    twice=$(instructions "$1" "$2" $((2 * messages)))
    if [ -z "$once" ] || [ -z "$twice" ]; then
        echo "no count for $1 $2: does '$program $1 $2 $messages' run under valgrind?" >&2
        exit 1
    fi
    echo "$once $twice $messages" | awk '{ printf "%.1f", ($2 - $1) / $3 }'
}

printf '%-16s %10s %10s %16s\n' scenario doorbell tokio 'doorbell/tokio'
for scenario in publish publish_receive publish_read wait batch publish_batch; do
    doorbell=$(per_message doorbell "$scenario")
    tokio=$(per_message tokio "$scenario")
    ratio=$(echo "$doorbell $tokio" | awk '{ printf "%.2f", $1 / $2 }')
    printf '%-16s %10s %10s %16s\n' "$scenario" "$doorbell" "$tokio" "$ratio"
done
