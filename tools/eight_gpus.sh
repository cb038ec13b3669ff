#!/usr/bin/env bash
# Training on 1, 2, 4 and 8 GPUs of one host, in three parts of less than ten minutes each:
#
#   tools/eight_gpus.sh scale  TEXT   Llama-2-7B, batch 2 and 8, coat and coat-fast, on each number of GPUs
#   tools/eight_gpus.sh large  TEXT   13B on 4 and 8, 30B on 8, 7B of OLMo's architecture
#   tools/eight_gpus.sh shards TEXT   how much of each transfer is hidden; 8 -> 2 -> 8 ranks by hash; a killed rank
#
#   [--gpus "1 2 4 8"] [--seconds 560] [--out FOLDER] [--program FILE] [--small]
#
# Writes FOLDER/results.csv (default eight_gpus): tokens/s a GPU (median of the steps after the fourth), the largest memory of a GPU
# by the driver, what is planned, the loss of the first and the last step, and the last |g|. A row whose loss did not fall is refused,
# and the script ends with status 1. Rows that are there are not measured again: call again where the time was short.
# --small: models of a few thousand parameters on the CPU, whose ranks are threads, to try the script.
set -uo pipefail
cd "$(dirname "$0")/.."
failed=0 gpus="1 2 4 8" seconds=560 out=eight_gpus program=build/octet small="" steps=14
part=${1:-} text=${2:-}
shift $(($# < 2 ? $# : 2))
while [ $# -gt 0 ]; do
  case $1 in
    --gpus) gpus=$2; shift ;;
    --seconds) seconds=$2; shift ;;
    --out) out=$2; shift ;;
    --program) program=$2; shift ;;
    --small) small=1 ;;
    *) part="" ;;
  esac
  shift
done
case "$part" in
  scale | large | shards) ;;
  *) sed -n '2,/^set /{/^# \{0,1\}/s/^# \{0,1\}//p}' "$0"; exit 2 ;;
esac
[ -r "$text" ] || { echo "eight_gpus: expected a text file, got '$text'" >&2; exit 2; }
text=$(realpath "$text") most=${gpus##* }
device=(--device cuda)
[ -z "$small" ] || device=(--device cpu --threads 2)
mkdir -p "$out"
csv=$out/results.csv
[ -s "$csv" ] || echo "model,recipe,batch,ranks,shard,steps,ms,tokens_per_s_per_rank,driver_mib,planned_gib,first_loss,loss,grad_norm" >"$csv"

tiny=(--set model.hidden=64 --set model.layers=2 --set model.heads=4 --set model.kv_heads=4 --set model.ffn=128 --set model.seq=64
  --set model.vocab=256)
common=(--quiet --set "data.train=[$text]" --set "data.val=[]" --set data.val_fraction=0 --set data.tokenizer=bytes
  --set data.sampling=random --set train.eval_every=0)

# model_sets NAME: the configuration, and what makes it the model.
model_sets() {
  local olmo=(--set model.hidden=4096 --set model.layers=32 --set model.heads=32 --set model.kv_heads=32 --set model.ffn=11008
    --set model.tied=false)
  case $1 in
    7b) sets=(recipes/llama-2-7b.yaml) ;;
    13b) sets=(recipes/llama-2-13b.yaml) ;;
    30b) sets=(recipes/llama-30b.yaml) ;;
    olmo-7b) sets=(recipes/olmo-1b.yaml "${olmo[@]}") ;;
  esac
  [ -z "$small" ] || sets+=("${tiny[@]}")
}

n_lines() { cat "$1" 2>/dev/null | wc -l; }
most_memory() { nvidia-smi --query-gpu=memory.used --format=csv,noheader,nounits 2>/dev/null | sort -n | tail -1; }

# measure MODEL RECIPE BATCH RANKS SHARD [--set ...]: a fresh run, ended once it has made its steps, since a model of 30B takes
# longer to save than to measure.
measure() {
  local key="$1,$2,$3,$4,$5" ranks=$4 folder=$out/run largest=0 used program_id
  ! grep -q "^$key," "$csv" || return 0
  [ $SECONDS -lt "$seconds" ] || { echo "$key: no time left, call again"; return 0; }
  model_sets "$1"
  rm -rf "$folder"
  setsid "$program" train "${sets[@]}" "${device[@]}" "${common[@]}" --ranks "$ranks" --set "recipe=$2" --set "train.batch=$3" \
    --set "parallel.shard=$5" --set optim.master=bf16_sr --set optim.warmup=5 --set train.steps=1000 --set train.save_every=0 \
    --set "out=$folder" "${@:6}" >"$out/last.log" 2>&1 &
  program_id=$!
  while kill -0 $program_id 2>/dev/null && [ $SECONDS -lt $((seconds + 30)) ]; do
    used=$(most_memory)
    [ "${used:-0}" -le "$largest" ] || largest=$used
    [ "$(n_lines "$folder/metrics.jsonl")" -lt $steps ] || break
    sleep 0.2
  done
  kill -KILL -- -$program_id 2>/dev/null
  wait $program_id 2>/dev/null
  python3 - "$key" "$folder/metrics.jsonl" "$ranks" "$largest" <<'P' >>"$csv" && tail -1 "$csv" || { failed=1; echo "$key: failed"; tail -3 "$out/last.log"; }
import json, statistics, sys
key, path, ranks, largest = sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4]
rows = [json.loads(line) for line in open(path).read().split("\n")[:-1]]
later = rows[4:] or sys.exit(1)
ms = statistics.median(row["time_ms"] for row in later)
first, loss, norm = rows[0]["loss"], rows[-1]["loss"], rows[-1]["grad_norm"]
if not (loss < first and norm > 0):
    sys.exit(f"{key}: refused: expected the loss to fall, got {loss} after {first} with |g| {norm}")
tokens = (rows[-1]["tokens"] - rows[-2]["tokens"]) / ranks
print(f"{key},{len(rows)},{ms:.1f},{tokens / ms * 1e3:.0f},{largest},{rows[-1]['mem_bytes'] / 2**30:.1f},{first:.3f},{loss:.3f},{norm:.4f}")
P
  rm -rf "$folder"
}

scale() {
  local ranks recipe
  for batch in 8 2; do
    for recipe in coat coat-fast; do
      for ranks in $gpus; do measure 7b $recipe $batch "$ranks" gradients; done
      measure 7b $recipe $batch "$most" parameters
    done
  done
}

large() {
  local ranks
  for ranks in $gpus; do
    [ "$ranks" -lt 4 ] && [ -z "$small" ] || measure 13b coat 4 "$ranks" parameters
  done
  measure 30b coat 4 "$most" parameters --set train.recompute=cheap
  measure olmo-7b coat 8 "$most" gradients
  measure olmo-7b coat 8 1 gradients
}

# Of the tensors of a run's newest checkpoint.
hash_of() { cat "$(ls -d "$1"/ckpt/step-* | sort | tail -1)"/*.safetensors | sha256sum; }

shards() {
  local a=$out/whole b=$out/parts last shape=(recipes/llama-124m.yaml) ids id
  model_sets 7b
  "$program" bench step "${sets[@]}" "${device[@]}" --ranks "$most" --recipes coat --rounds 5 --set train.batch=8 \
    --set optim.master=bf16_sr | tee "$out/transfers.txt"
  [ -z "$small" ] || shape+=("${tiny[@]}")
  shape+=("${device[@]}" "${common[@]}" --set recipe=fp32 --set parallel.strict=true --set optim.schedule=constant --set optim.warmup=0
    --set data.sampling=sequential)
  rm -rf "$a" "$b"
  train() { "$program" train "${shape[@]}" "$@" >"$out/last.log" 2>&1 || { cat "$out/last.log"; return 1; }; }
  train --ranks "$most" --set train.batch=2 --set train.steps=6 --set "out=$a" || return
  train --ranks "$most" --set train.batch=2 --set train.steps=2 --set "out=$b" || return
  train --ranks 2 --resume --set train.batch=2 --set train.accumulate=$((most / 2)) --set train.steps=4 --set "out=$b" || return
  train --ranks "$most" --resume --set train.batch=2 --set train.accumulate=1 --set train.steps=6 --set "out=$b" || return
  if [ "$(hash_of "$a")" = "$(hash_of "$b")" ]; then echo "$most -> 2 -> $most ranks: the checkpoint of $most ranks"; else
    echo "$most -> 2 -> $most ranks: ANOTHER checkpoint"; fi
  rm -rf "$a" "$b"
  [ -z "$small" ] || { echo "a killed rank: ranks on the CPU are threads of one process"; return 0; }
  "$program" train "${shape[@]}" --ranks "$most" --set train.steps=100000 --set train.save_every=0 --set "out=$a" >"$out/killed.log" 2>&1 &
  last=$!
  for id in $(seq 300); do sleep 0.2; [ "$(n_lines "$a/metrics.jsonl")" -lt 8 ] || break; done
  ids=$(pgrep -P $last | tail -1)
  kill -KILL "$ids"
  id=$SECONDS
  wait $last
  echo "a killed rank: status $? after $((SECONDS - id)) s: $(tail -1 "$out/killed.log")"
}

$part
echo "$part: $SECONDS s"
exit $failed
