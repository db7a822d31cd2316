#!/bin/bash
# make-layout-fixtures.sh - records where the real md puts every sector, as text.
#
# Boots a Linux kernel (run-in-uml.sh; $RUN_IN_UML names another), lets md make every array of
# layout-fixtures/arrays.txt, writes each array full of numbered sectors, and reads from the members
# what went where. The result is crates/engine/tests/fixtures/layouts/LEVEL.txt, one paragraph an array:
#
#   slot 2: 16+8 P+8 -+4      this member holds, from its first sector on: array sectors 16 to 23,
#                             8 sectors of P, then 4 sectors that md never wrote
#   exponents 3: 1 - - 0      RAID6: in row 3, the powers of g that Q was computed with, by slot
#
# P and Q are told by their bytes, recomputed here from their definitions. Needs python3 and what
# run-in-uml.sh needs; takes seconds. Run it again only to add arrays: the maps never change.
set -euo pipefail
cd "$(dirname "$0")"
[ $# -eq 0 ] || { sed -n '2,/^set /p' "$0" | sed '$d;s/^# \{0,1\}//'; exit 2; }

share=$(mktemp -d)
trap 'rm -rf -- "$share"' EXIT
out=../crates/engine/tests/fixtures/layouts
mkdir -p "$out"

cp layout-fixtures/arrays.txt "$share/"
python3 layout-fixtures/derive.py numbers "$share/numbers" 2048
"${RUN_IN_UML:-./run-in-uml.sh}" -k linear -d "$share" layout-fixtures/guest.sh
python3 layout-fixtures/derive.py maps "$share" "$out"
