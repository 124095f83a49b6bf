#!/usr/bin/env bash
# Coverage-guided fuzzing of every target, on stable Rust. Afterwards each target must find its planted bug (src/planted.rs).
#
#   fuzz/run.sh                5 s per target
#   fuzz/run.sh 300            5 min per target
#   fuzz/run.sh 300 payload    only this target
#
# Starts from the seeds in corpus/ and the inputs that earlier runs found. New inputs, and those that fail, go to target/fuzz/.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

seconds=${1:-5}
shift || true
targets=("$@")
if ((${#targets[@]} == 0)); then
    for file in fuzz/fuzz_targets/*.rs; do targets+=("$(basename "$file" .rs)"); done
fi

work="$(realpath -m "${CARGO_TARGET_DIR:-target}")/fuzz"
# The flags that `cargo fuzz -s none` sets; none of them needs a nightly compiler. `--target` keeps them away from build scripts.
coverage="-Cpasses=sancov-module --cfg fuzzing"
for flag in level=4 inline-8bit-counters pc-table trace-compares; do
    coverage+=" -Cllvm-args=-sanitizer-coverage-$flag"
done
host=$(rustc --version --verbose | sed -n 's/^host: //p')
RUSTFLAGS=$coverage cargo build --release --manifest-path fuzz/Cargo.toml --target "$host" --target-dir "$work"

# Runs a target once; its output goes to a file.
fuzz() {
    local target=$1 log=$work/$2/$1.log found=$work/$2/$1/
    shift 2
    local -a options=(-timeout=120 -rss_limit_mb=1024 -artifact_prefix="$found" "$@")
    [[ -e fuzz/dictionaries/$target.dict ]] && options+=(-dict="fuzz/dictionaries/$target.dict")
    rm -rf "$found"
    mkdir -p "$found"
    "$work/$host/release/$target" "${options[@]}" >"$log" 2>&1
}

# Fuzzes the target from all known inputs.
search() {
    local target=$1 log=$work/found/$1.log input
    mkdir -p "$work/corpus/$target"
    if fuzz "$target" found -max_total_time="$seconds" -print_final_stats=1 "$work/corpus/$target" "fuzz/corpus/$target"; then
        awk -v target="$target" '
            /^#[0-9]+.* cov: / { for (i = 1; i < NF; i++) if ($i == "cov:") cov = $(i + 1) }
            /^stat::number_of_executed_units/ { runs = $2 }
            END { printf "ok    %-14s %10d executions, %5d edges covered\n", target, runs, cov }' "$log"
        return
    fi
    grep -A 3 -E 'panicked at|ERROR: libFuzzer' "$log" | sed 's/^/      | /'
    input=$(find "$work/found/$target" -type f | head -n 1)
    echo "FAIL  $target: ${input:-no input was kept}; full output: $log"
    [[ -n $input ]] && echo "      to repeat: $work/$host/release/$target $input"
    return 1
}

# Fuzzes the target with its planted bug and without any seed. Finding it shows that the search works.
search_planted() {
    local status=0
    PLANTED=1 fuzz "$1" planted -max_total_time=60 || status=$?
    # 77: libFuzzer found a failing input.
    if [[ $status -ne 77 ]]; then
        echo "FAIL  $1: the planted bug was not found (exit status $status); full output: $work/planted/$1.log"
        return 1
    fi
    awk -v target="$1" '
        /^#[0-9]/ { runs = substr($1, 2) }
        END { printf "ok    %-14s planted bug found after about %d executions\n", target, runs }' "$work/planted/$1.log"
}

# One job per core.
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
