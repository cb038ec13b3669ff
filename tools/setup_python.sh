#!/usr/bin/env bash
# An environment for building and testing the Python package, in BUILD/venv; quick and silent when it is there.
#   tools/setup_python.sh [BUILD]
# Without the interpreter's headers or the package index there is none: a line says so, and the Python tests skip.
set -euo pipefail
cd "$(dirname "$0")/.."
build=${1:-build}
venv=$build/venv
packages="nanobind>=2.4 numpy>=1.24 ml_dtypes>=0.4 pytest>=7"

is_whole() { "$venv/bin/python" -c 'import nanobind, numpy, ml_dtypes, pytest' 2>/dev/null; }

none() {
  rm -rf "$venv"
  echo "python: $1; the Python package is not built and its tests skip"
  exit 0
}

if [ -x "$venv/bin/python" ] && is_whole; then exit 0; fi
python=/usr/bin/python3
[ -x "$python" ] || python=$(command -v python3) || none "expected python3, it is not installed"
"$python" -c 'import sys, sysconfig, os
sys.exit(not os.path.exists(os.path.join(sysconfig.get_path("include"), "Python.h")))' ||
  none "expected the headers of $python (python3-dev), they are not installed"
mkdir -p "$build"
echo "python: making $venv"
"$python" -m venv "$venv" >"$build/venv.log" 2>&1 || none "expected venv and pip (python3-venv), see $build/venv.log"
# shellcheck disable=SC2086
"$venv/bin/pip" install --quiet --disable-pip-version-check --retries 1 --timeout 20 $packages \
  >>"$build/venv.log" 2>&1 </dev/null || none "expected the packages $packages, see $build/venv.log"
is_whole || none "expected an environment that works, see $build/venv.log"
