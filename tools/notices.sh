#!/usr/bin/env bash
# Copies into FOLDER what Debian says of the copyright of the packages that these libraries come from, and of those that are
# compiled into Octet, with the licences that those texts refer to:  tools/notices.sh FOLDER LIBRARY...
set -euo pipefail
folder=$1
shift
command -v dpkg-query >/dev/null || { echo "notices: expected Debian's packages, left out" >&2; exit 0; }
mkdir -p "$folder"
packages="nlohmann-json3-dev libcli11-dev libeigen3-dev libjs-dygraphs"
for library in "$@"; do
  package=$(dpkg-query -S "*/$(basename "$library")" 2>/dev/null | head -n 1 | cut -d: -f1)
  [ -n "$package" ] || { echo "notices: expected a Debian package of $library, got none" >&2; exit 1; }
  packages="$packages $package"
done
for package in $packages; do
  [ ! -e "/usr/share/doc/$package/copyright" ] || cp -L "/usr/share/doc/$package/copyright" "$folder/$package"
done
for licence in $(grep -ohE '/usr/share/common-licenses/[A-Za-z0-9.-]*[A-Za-z0-9]' "$folder"/* | sort -u); do
  [ ! -e "$licence" ] || cp -L "$licence" "$folder/$(basename "$licence").txt"
done
