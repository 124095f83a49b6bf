#!/usr/bin/env bash
# Runs the ring's threads under ThreadSanitizer, which must find nothing, and then a planted race, which it must find.
# Takes about a minute, most of it to build everything with the sanitizer into a target directory of its own.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

CARGO_TARGET_DIR="$(realpath -m "${CARGO_TARGET_DIR:-target}")/tsan"
export CARGO_TARGET_DIR
# Sanitizers are unstable. The prebuilt standard library is not instrumented; the second flag allows that.
export RUSTC_BOOTSTRAP=1
export RUSTFLAGS="-Zsanitizer=thread -Cunsafe-allow-abi-mismatch=sanitizer"
export TSAN_OPTIONS="suppressions=$PWD/tests/tsan/suppressions.txt halt_on_error=1 history_size=4"

host=$(rustc --version --verbose | sed -n 's/^host: //p')
build=$(cargo test --quiet --target "$host" --test tsan --no-run --message-format=json)
program=$(sed -n 's/.*"name":"tsan".*"executable":"\([^"]*\)".*/\1/p' <<<"$build" | tail -n 1)

for _ in $(seq "${RUNS:-3}"); do
    "$program"
done

status=0
"$program" must-race >/dev/null 2>&1 || status=$?
if [[ $status -ne 66 ]]; then
    echo "the planted race was not reported (exit status $status): the suppressions hide too much" >&2
    exit 1
fi
echo "clean, and the planted race was reported"
