#!/usr/bin/env bash
# Runs compute-sanitizer over the GPU suite on reduced shapes, our own kernels only.
#
#   tools/sanitize.sh memcheck|racecheck|initcheck|synccheck|all [BUILD]
#
# BUILD (default build) holds the test programs, in tests/ or by themselves, and cuda/liboctet_cuda.so, unless
# OCTET_CUDA_MODULE names it. Of octet_gpu_training only the first weights are drawn: runs launch the same kernels as
# the other programs, on larger shapes.
# Prints one line a program, keeps the logs in OCTET_SANITIZE_LOGS (default BUILD), and ends with 1 where a kernel is at
# fault. OCTET_SANITIZE_FILTER chooses tests as GoogleTest's --gtest_filter does, OCTET_SANITIZE_PROGRAMS programs:
# "parity rows update".
set -euo pipefail
cd "$(dirname "$0")/.."
tool=${1:-} build=${2:-build}
case $tool in
  memcheck | racecheck | initcheck | synccheck) ;;
  all)
    for tool in memcheck racecheck initcheck synccheck; do tools/sanitize.sh "$tool" "$build" || failed=1; done
    exit "${failed:-0}"
    ;;
  *) sed -n '2,/^set /{/^# \{0,1\}/s/^# \{0,1\}//p}' "$0"; exit 2 ;;
esac

sanitizer=$(command -v compute-sanitizer || true)
for place in /usr/local/cuda/bin /usr/local/cuda/compute-sanitizer; do
  [ -n "$sanitizer" ] || [ ! -x "$place/compute-sanitizer" ] || sanitizer=$place/compute-sanitizer
done
[ -n "$sanitizer" ] || { echo "sanitize: expected compute-sanitizer on the path or beside nvcc, got none" >&2; exit 1; }
# Kernels in namespace octet; the flag's name has changed between versions.
flag=--kernel-name
! "$sanitizer" --help | grep -q -- --kernel-regex || flag=--kernel-regex
options=(--tool "$tool" --error-exitcode 77 "$flag" kns=octet --print-limit 20)

build=$(realpath "$build") logs=$(realpath "${OCTET_SANITIZE_LOGS:-$build}")
export OCTET_CUDA_MODULE=${OCTET_CUDA_MODULE:-$build/cuda/liboctet_cuda.so}
failed=0 n=0
for name in ${OCTET_SANITIZE_PROGRAMS:-$(ls tests/gpu)}; do
  program=$build/tests/octet_gpu_$name
  [ -x "$program" ] || program=$build/octet_gpu_$name
  [ -x "$program" ] || continue
  filter=${OCTET_SANITIZE_FILTER:-*}
  [ "$name" != training ] || filter=DrawnWeights.*
  n=$((n + 1)) began=$SECONDS log=$logs/sanitize-$tool-$name.log status=0
  "$sanitizer" "${options[@]}" "$program" --gtest_brief=1 \
    --gtest_filter="$filter" >"$log" 2>&1 || status=$?
  summary=$(grep -E 'ERROR SUMMARY|RACECHECK SUMMARY' "$log" | tail -n 1 | sed 's/^=* *//' || true)
  [ -n "$summary" ] || { summary="no summary"; status=1; }
  ! grep -q 'PASSED.* 0 tests' "$log" || { summary="no test ran"; status=1; }
  if [ "$status" = 0 ]; then verdict=clean; else verdict="FAILED ($status)"; failed=1; fi
  echo "$tool $name: $verdict, $((SECONDS - began)) s, $summary; $log"
done
[ "$n" -gt 0 ] || { echo "sanitize: expected octet_gpu_* in $build/tests or $build, got none" >&2; exit 1; }
exit "$failed"
