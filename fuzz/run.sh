#!/usr/bin/env bash
# Fuzzes every target on stable Rust, guided by coverage, and then demands that each finds the fault planted in it (src/planted.rs).
#
#   fuzz/run.sh                a few seconds a target
#   fuzz/run.sh 300            five minutes a target
#   fuzz/run.sh 300 payload    only this one
#
# Begins with the seeds in corpus/ and what earlier runs have found. What is new goes below target/fuzz/, inputs that fail too.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

seconds=${1:-5}
shift || true
targets=("$@")
if ((${#targets[@]} == 0)); then
    for file in fuzz/fuzz_targets/*.rs; do targets+=("$(basename "$file" .rs)"); done
fi

work="$(realpath -m "${CARGO_TARGET_DIR:-target}")/fuzz"
# What `cargo fuzz -s none` sets: none of it needs a nightly compiler. The flags are for the target alone, not for build scripts.
coverage="-Cpasses=sancov-module --cfg fuzzing"
for flag in level=4 inline-8bit-counters pc-table trace-compares; do
    coverage+=" -Cllvm-args=-sanitizer-coverage-$flag"
done
host=$(rustc --version --verbose | sed -n 's/^host: //p')
RUSTFLAGS=$coverage cargo build --release --manifest-path fuzz/Cargo.toml --target "$host" --target-dir "$work"

# One target as long as is asked for; what it says goes to a file.
fuzz() {
    local target=$1 log=$work/$2/$1.log found=$work/$2/$1/
    shift 2
    local -a options=(-timeout=120 -rss_limit_mb=1024 -artifact_prefix="$found" "$@")
    [[ -e fuzz/dictionaries/$target.dict ]] && options+=(-dict="fuzz/dictionaries/$target.dict")
    rm -rf "$found"
    mkdir -p "$found"
    "$work/$host/release/$target" "${options[@]}" >"$log" 2>&1
}

# As it is, with everything that is known.
search() {
    local target=$1 log=$work/found/$1.log input
    mkdir -p "$work/corpus/$target"
    if fuzz "$target" found -max_total_time="$seconds" -print_final_stats=1 "$work/corpus/$target" "fuzz/corpus/$target"; then
        awk -v target="$target" '
            /^#[0-9]+.* cov: / { for (i = 1; i < NF; i++) if ($i == "cov:") cov = $(i + 1) }
            /^stat::number_of_executed_units/ { runs = $2 }
            END { printf "ok    %-12s %10d executions, %5d places covered\n", target, runs, cov }' "$log"
        return
    fi
    grep -A 3 -E 'panicked at|ERROR: libFuzzer' "$log" | sed 's/^/      | /'
    input=$(find "$work/found/$target" -type f | head -n 1)
    echo "FAIL  $target: ${input:-no input was kept}, all of it in $log"
    [[ -n $input ]] && echo "      again: $work/$host/release/$target $input"
    return 1
}

# With its fault, from nothing: whether it is found says whether the search searches.
search_planted() {
    local status=0
    PLANTED=1 fuzz "$1" planted -max_total_time=60 || status=$?
    # 77: libFuzzer has an input that fails.
    if [[ $status -ne 77 ]]; then
        echo "FAIL  $1: the planted fault was not found (exit status $status), see $work/planted/$1.log"
        return 1
    fi
    awk -v target="$1" '
        /^#[0-9]/ { runs = substr($1, 2) }
        END { printf "ok    %-12s planted fault found after about %d executions\n", target, runs }' "$work/planted/$1.log"
}

# As many at once as there are cores.
failed=$work/failed
rm -f "$failed"
for step in search search_planted; do
    for target in "${targets[@]}"; do
        while (($(jobs -rp | wc -l) >= $(nproc))); do wait -n || true; done
        { "$step" "$target" || touch "$failed"; } &
    done
    wait
done
[[ ! -e $failed ]]
