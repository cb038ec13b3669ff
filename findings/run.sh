#!/usr/bin/env bash
# Runs every finding beside it: a line each. Exit status 1 if one has changed.
set -uo pipefail
cd "$(dirname "$0")"
status=0
for script in *.sh; do
  [ "$script" = run.sh ] && continue
  [ "$script" = common.sh ] && continue
  if output=$(bash "$script" 2>&1); then
    echo "as found  $script"
  elif [ $? = 77 ]; then
    echo "skipped   $script: its packages, or the card that it asks for, are not there"
  else
    echo "CHANGED   $script"
    sed 's/^/    /' <<<"$output" | tail -n 12
    status=1
  fi
done
exit $status
