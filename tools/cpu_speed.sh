#!/usr/bin/env bash
# The speed figures of docs/results in one command: every recipe's step beside bf16's, and AdamW's
# states beside f32's, for each set of instructions that this machine has. Ratios are within a run.
#
#   tools/cpu_speed.sh [--program FILE] [--threads N] [--rounds N] [--models 25m,124m]
#                      [--isas avx2,avx512,amx] [--recipes bf16,fp8_linear,coat,hif8]
#
# Needs nothing but the program (default build/octet, built when it is missing) and python3.
# The last column says whether the figure keeps its limit: a step at most 1.25 times as long as
# bf16's (hif8: 1.3), expanded 8-bit states at least half as fast a parameter as f32 ones that run at
# memcpy's bandwidth (28 bytes each; ours may be faster than that: "x f32" is beside them).
set -euo pipefail
cd "$(dirname "$0")/.."
program=build/octet threads=0 rounds=5 models=25m,124m isas=avx2,avx512,amx
recipes=bf16,fp8_linear,coat,hif8
while [ $# -gt 0 ]; do
  case $1 in
    --program) program=$2 ;;
    --threads) threads=$2 ;;
    --rounds) rounds=$2 ;;
    --models) models=$2 ;;
    --isas) isas=$2 ;;
    --recipes) recipes=$2 ;;
    *) sed -n '2,/^set /{/^# \{0,1\}/s/^# \{0,1\}//p}' "$0"; exit 2 ;;
  esac
  shift 2
done
[ -x "$program" ] || ./dev build octet >/dev/null

rows=$(mktemp -d)
trap 'rm -r "$rows"' EXIT
bench() { "$program" bench "$@" --isa "$isa" --threads "$threads" --json --quiet 2>"$rows/error"; }
for isa in ${isas//,/ }; do
  # An instruction set that is missing is refused at once.
  bench optimizer >"$rows/$isa-adamw.json" ||
    { rm "$rows/$isa-adamw.json"; echo "$isa: left out: $(tail -n 1 "$rows/error")"; continue; }
  for model in ${models//,/ }; do
    case $model in
      25m) config=() set=(--set model.seq=512) ;;
      124m) config=(recipes/llama-124m.yaml) set=(--set train.batch=2) ;;
      *) echo "models: expected 25m or 124m, got $model" >&2; exit 2 ;;
    esac
    bench step "${config[@]}" "${set[@]}" --recipes "$recipes" --rounds "$rounds" \
      >"$rows/$isa-$model.json"
  done
done

python3 - "$rows" <<'END'
import json
import pathlib
import sys

LINE = "{:<7} {:<31} {:<50} {:>10} {:>7} {:>7} {:>9} {:>9}  {}"
F32_BYTES = 28
print(LINE.format("isa", "shape", "row", "ms or G/s", "x bf16", "x f32", "x memcpy", "of floor",
                  "limit"))
for path in sorted(pathlib.Path(sys.argv[1]).glob("*.json")):
    isa = path.stem.split("-")[0]
    rows = json.loads(path.read_text())
    speed = {row["name"]: row for row in rows if row["unit"] == "tokens/s"}
    copied = next((row["value"] for row in rows if row["name"] == "memcpy"), None)
    for row in rows:
        name, shape = row["name"], row["shape"].replace(" bytes each", " B")
        if name.endswith(" time"):
            name = name[:-len(" time")]
            slower = 1 / speed[name]["ratio"]
            limit = 1.3 if name.endswith("hif8") else 1.25
            verdict = f"<= {limit} {'kept' if slower <= limit else 'MISSED'}"
            print(LINE.format(isa, shape, name, f"{row['value']:.1f}", f"{slower:.3f}", "", "",
                              f"{row['share']:.3f}", "" if name == "step bf16" else verdict))
        elif name.startswith("adamw"):
            of_memcpy = row["value"] * F32_BYTES / copied
            verdict = f">= 0.5 {'kept' if max(of_memcpy, row['ratio']) >= 0.5 else 'MISSED'}"
            print(LINE.format(isa, shape.replace(" parameters", ""), name, f"{row['value']:.3f}", "",
                              f"{row['ratio']:.3f}", f"{of_memcpy:.3f}", f"{row['share']:.3f}",
                              verdict if "+x" in name else ""))
        elif name in ("memory", "memcpy", "gemm f32", "gemm bf16") and path.stem.endswith("adamw"):
            print(LINE.format(isa, shape, name, f"{row['value']:.1f}", "", "", "", "", row["unit"]))
END
