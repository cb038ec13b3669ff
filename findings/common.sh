# Sourced by each finding: `with_packages NAME==VERSION...` runs the Python program of its standard input with them, in a
# temporary folder that goes when it ends. The program exits with 1 if what it observes has changed.
with_packages() {
  local folder status=0
  folder=$(mktemp -d)
  # shellcheck disable=SC2064
  trap "rm -rf '$folder'" EXIT
  python3 -m venv "$folder/venv" && "$folder/venv/bin/pip" install --quiet --disable-pip-version-check "$@" >&2 || return 77
  echo "with $*"
  cat >"$folder/finding.py"
  (cd "$folder" && venv/bin/python finding.py 2>"$folder/stderr") || status=$?
  [ "$status" = 0 ] || tail -n 5 "$folder/stderr" >&2
  return "$status"
}

# The same for programs that import tiny_gguf.py.
with_tiny_gguf() {
  PYTHONPATH=$(cd "$(dirname "$0")" && pwd) with_packages xllamacpp==2026.10.11549 gguf==0.19.0 numpy==2.4.6
}
