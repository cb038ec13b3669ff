#!/usr/bin/env bash
# What `cmake --install` lays down, as its users meet it:  installed_test.sh BUILD COMPILER
# A project builds against it with find_package and with pkg-config, and runs; the program finds its recipes; completions and
# the manual are read by what they are for.
set -euo pipefail
build=$(realpath "$1") compiler=$2 here=$(realpath "$(dirname "$0")")
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
cd "$scratch"
prefix=$scratch/prefix
fail() { echo "installed: $1" >&2; exit 1; }

cmake --install "$build" --prefix "$prefix" >install.log || { cat install.log; fail "expected an installation"; }
library=$prefix/lib/liboctet.so.0
readelf -d "$library" | grep 'SONAME.*\[liboctet.so.0\]' >/dev/null || fail "expected the soname liboctet.so.0"
exported=$(nm -DC --defined-only "$library" | cut -d' ' -f3- | grep -vE '^(octet::|vtable|typeinfo|OCTET_0)' || true)
[ -z "$exported" ] || fail "expected symbols of include/octet alone, got $exported"

# Three losses and no error; a text that is not there is an octet::Error, caught across the library's boundary.
try_user() {
  printf 'The quick brown fox jumps over the lazy dog. %.0s' $(seq 200) >text.txt
  [ "$("$1" text.txt "$2" | grep -c '^[0-9.]*$')" = 3 ] || fail "$1: expected three losses"
  local status=0
  "$1" none.txt "$2-none" 2>error.txt || status=$?
  [ "$status" = 2 ] && grep -q '^user: .*none.txt' error.txt || fail "$1: expected an error, got $(cat error.txt)"
}

cmake -S "$here/user" -B user -DCMAKE_PREFIX_PATH="$prefix" -DCMAKE_CXX_COMPILER="$compiler" >configure.log
cmake --build user >build.log || { cat build.log; fail "expected find_package's project to build"; }
try_user user/user run
if command -v pkg-config >/dev/null; then
  # shellcheck disable=SC2046
  PKG_CONFIG_PATH=$prefix/lib/pkgconfig "$compiler" -std=c++20 "$here/user/user.cpp" -o with_pkg_config \
    $(PKG_CONFIG_PATH=$prefix/lib/pkgconfig pkg-config --cflags --libs octet)
  LD_LIBRARY_PATH=$prefix/lib try_user ./with_pkg_config run_of_pkg_config
else
  echo "installed: skipped pkg-config, it is not there"
fi

octet=$prefix/bin/octet
env -i "$octet" recipes | grep '^llama-3m  *A byte-level Llama' >/dev/null || fail "expected octet recipes to list llama-3m"
env -i "$octet" plan llama-3m --json | grep '"peak_bytes"' >/dev/null || fail "expected a plan of llama-3m"

# As the shell calls it: the words of the line, of which the last is completed.
complete_words() {
  bash -c 'PATH='"$prefix/bin:$PATH"'; source "$1"; shift; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); compopt() { :; }
    _octet; echo "${COMPREPLY[*]}"' bash "$prefix/share/bash-completion/completions/octet" "$@"
}
expect() {
  local wanted=$1
  shift
  [ "$(complete_words "$@")" = "$wanted" ] || fail "$*: expected $wanted, got $(complete_words "$@")"
}
expect "train" octet trai
expect "--telemetry" octet train --tele
expect "llama-2-13b llama-2-7b" octet train llama-2-
expect "cpu cuda" octet train --device ""
expect "formats" octet study for
expect "optim.lr=" octet plan --set optim.lr
if command -v zsh >/dev/null; then zsh -n "$prefix/share/zsh/site-functions/_octet"; else echo "installed: skipped zsh"; fi
if command -v groff >/dev/null; then
  [ -z "$(groff -man -ww -Tutf8 -z "$prefix/share/man/man1/octet.1" 2>&1)" ] || fail "expected a manual without warnings"
  groff -man -Tascii "$prefix/share/man/man1/octet.1" | grep 'resume' >/dev/null || fail "expected --resume in the manual"
fi
echo "installed: all as expected"
