#!/usr/bin/env bash
# Builds the program with one status line: tools/quiet_build.sh BUILD JOBS. On a terminal ninja paints it; elsewhere what the
# compiler says goes to BUILD/build.log, and is shown if it fails.
set -euo pipefail
build=$1 jobs=$2 log=$1/build.log
if [ -t 1 ]; then  # ninja paints one line over and over
  NINJA_STATUS='building octet: %f of %t, %es  ' cmake --build "$build" -j "$jobs" --target octet octet_shared
  exit
fi
began=$SECONDS
cmake --build "$build" -j "$jobs" --target octet octet_shared >"$log" 2>&1 || { cat "$log"; exit 1; }
echo "built $build/octet in $((SECONDS - began)) s"
