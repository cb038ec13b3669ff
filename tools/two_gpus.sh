#!/usr/bin/env bash
# Whether two GPUs train what one trains, and how fast, in one call of less than nine minutes:
#
#   DATA=FILE [OUT=two_gpus] [PROGRAM=build/octet] [DEVICE=cuda] tools/two_gpus.sh [doctor] [links] [train] [saves]
#
# doctor: `octet doctor --ranks 2`; links: `octet bench links`; train: the 124M shape for 200 steps, 16 rows of 1,024 bytes of
# DATA each, with recipes coat, bf16 and fp8_lm, on one card and on two with stages gradients, parameters and none; saves: `kill -9`
# of a rank in the middle of KILLS (4) saves of 124M by two ranks, each time gone on with, against a run that nobody kills, by the bytes of
# the last checkpoint. Without a word: the first three. One card takes the two ranks' rows one after the other, so that only the order of sums differs; the learning rate
# is low, so that such roundings grow little within 200 steps (at 6e-4 one card's own losses are 0.02 apart when its sums are taken in
# another order). STEPS, RECIPES, STAGES, LR and SEED say otherwise. What fails does not stop the rest.
#
# Prints a table and writes OUT/two_gpus.csv, a row a run. Status 1 where a part failed, a loss did not fall (the row has no speed
# then), or the mean loss of the last 50 steps is further from one card's than 0.003 (fp8_lm, whose gradients travel in E4M3: 0.01).
# DEVICE=cpu tries the script: a model of a few thousand parameters, 40 steps, ranks as threads.
set -uo pipefail
cd "$(dirname "$0")/.."
device=${DEVICE:-cuda} out=${OUT:-two_gpus} program=${PROGRAM:-build/octet} data=${DATA:-}
recipes=${RECIPES:-coat bf16 fp8_lm} stages=${STAGES:-gradients parameters none} steps=${STEPS:-200}
parts=${*:-doctor links train}
for part in $parts; do
  case $part in
    doctor | links | train | saves) ;;
    *) sed -n '2,/^set /{/^# \{0,1\}/s/^# \{0,1\}//p}' "$0"; exit 2 ;;
  esac
done
case " $parts " in
  *" train "* | *" saves "*) [ -r "$data" ] || { echo "two_gpus: expected DATA=FILE, a text, got '$data'" >&2; exit 2; } ;;
esac
mkdir -p "$out"
csv=$out/two_gpus.csv failed=0
flags=(--device "$device")
shape=(recipes/llama-124m.yaml --set optim.warmup=20 --set data.val_fraction=0 --set "data.val=[]" --set train.eval_every=0
  --set train.save_every=0 --set train.export=none --set "optim.lr=${LR:-3e-5}"
  --set "train.seed=${SEED:-1}" --set train.deterministic=true)
if [ "$device" = cpu ]; then
  steps=${STEPS:-40}
  shape+=(--threads 2 --set model.hidden=64 --set model.layers=2 --set model.heads=4 --set model.kv_heads=4 --set model.ffn=128
    --set model.seq=64 --set optim.lr=5e-3 --set optim.warmup=2)
fi
shape+=(--set "train.steps=$steps")

# row RECIPE RANKS STAGE FOLDER: of a run's metrics; status 1 where it is no good one.
row() {
  python3 - "$csv" "$@" <<'P'
import json, statistics, sys
csv, recipe, ranks, stage, folder = sys.argv[1:]
try:
    rows = [json.loads(line) for line in open(folder + "/metrics.jsonl").read().split("\n")[:-1]]
    rows = [row for row in rows if "loss" in row and "time_ms" in row]
    last = [row["loss"] for row in rows[-min(50, max(1, len(rows) // 4)):]]
    first, mean, norm = rows[0]["loss"], statistics.mean(last), rows[-1]["grad_norm"]
except (OSError, IndexError, KeyError, ValueError) as error:
    open(csv, "a").write(f"{recipe},{ranks},{stage},,,,,,no metrics\n")
    sys.exit(f"two_gpus: {recipe}, {ranks} ranks, {stage}: no metrics ({error})")
one = [line.split(",") for line in open(csv) if line.startswith(f"{recipe},1,")]
difference = mean - float(one[0][4]) if one and one[0][4] else None
bound = 0.01 if recipe == "fp8_lm" else 0.003
ms = statistics.median(row["time_ms"] for row in rows[4:] or rows)
speed = f"{(rows[-1]['tokens'] - rows[-2]['tokens']) / ms * 1e3:.0f}" if len(rows) > 1 else ""
state = "ok"
if not (mean < first and norm > 0):
    state, speed = "the loss did not fall", ""
elif int(ranks) > 1 and difference is None:
    state = "one card's loss is missing"
elif int(ranks) > 1 and abs(difference) > bound:
    state = f"further than {bound} from one card"
shown = "" if int(ranks) == 1 or difference is None else f"{difference:+.5f}"
open(csv, "a").write(f"{recipe},{ranks},{stage},{first:.4f},{mean:.5f},{shown},{norm:.4f},{speed},{state}\n")
sys.exit(state != "ok")
P
}

train_one() {
  local recipe=$1 ranks=$2 stage=$3 folder=$out/run log=$out/$1-$2-$3.log master=bf16_remainder
  case $recipe in *fp16* | scalify) master=auto ;; esac # which only BF16 weights have
  rm -rf "$folder"
  timeout 150 "$program" train "${shape[@]}" "${flags[@]}" --quiet --ranks "$ranks" --set "recipe=$recipe" --set "optim.master=$master" \
    --set "parallel.shard=$stage" --set "data.train=[$(realpath "$data")]" --set train.batch=8 \
    --set "train.accumulate=$((2 / ranks))" --set "out=$folder" >"$log" 2>&1
  local status=$?
  [ $status -eq 0 ] || { failed=1; echo "two_gpus: $recipe, $ranks ranks, $stage: status $status: $(tail -1 "$log")"; }
  row "$recipe" "$ranks" "$stage" "$folder" || failed=1
  rm -rf "$folder"
}

train() {
  echo "recipe,ranks,stage,first_loss,mean_loss_last_50,difference,grad_norm,tokens_per_s,state" >"$csv"
  for recipe in $recipes; do
    train_one "$recipe" 1 none
    for stage in $stages; do train_one "$recipe" 2 "$stage"; done
  done
  column -s, -t "$csv" 2>/dev/null || cat "$csv"
}

save_sums() { (cd "$1/ckpt/step-$(printf %06d "$2")" && sha256sum ./*.safetensors); }

n_saved() { find "$1/ckpt" -mindepth 1 -maxdepth 1 -name 'step-??????' 2>/dev/null | wc -l; }

# Whether a save writes into a folder of its own, which is no checkpoint yet; since this start, and not the rehearsal's.
is_saving() {
  [ -n "$(find "$1/ckpt" -mindepth 1 -maxdepth 1 -newer "$out/start" -name 'step-??????.*' ! -name 'step-000000.*' 2>/dev/null)" ]
}

saves() {
  local last=24 whole=$out/whole killed=$out/killed n=0 status
  local command=("$program" train "${shape[@]}" "${flags[@]}" --quiet --ranks 2 --set recipe=coat --set optim.master=bf16_remainder --set parallel.shard=gradients
    --set "data.train=[$(realpath "$data")]" --set train.batch=2 --set "train.steps=$last" --set train.save_every=3
    --set train.keep=99)
  rm -rf "$whole" "$killed"
  timeout 150 "${command[@]}" --set "out=$whole" >"$out/whole.log" 2>&1 || { failed=1; tail -1 "$out/whole.log"; return; }
  while [ $n -le 40 ]; do
    local saved
    saved=$(n_saved "$killed")
    setsid "${command[@]}" --set "out=$killed" --resume >"$out/killed.log" 2>&1 &
    local run=$! victim
    if [ $n -lt "${KILLS:-4}" ]; then
      # The second save of a start, so that each start gets on by one.
      while kill -0 $run 2>/dev/null && [ "$(n_saved "$killed")" -le $saved ]; do sleep 0.002; done
      touch "$out/start"
      while kill -0 $run 2>/dev/null && ! is_saving "$killed"; do sleep 0.002; done
      victim=$(pgrep -P $run | tail -1)
      [ $((n % 2)) -eq 1 ] || victim=$run
      kill -9 "${victim:-$run}" 2>/dev/null
    fi
    wait $run
    status=$?
    echo "saves: start $((n + 1)) ended with $status, $(n_saved "$killed") checkpoints"
    pkill -9 -g $run 2>/dev/null
    n=$((n + 1))
    [ $status -eq 0 ] && break
  done
  if diff <(save_sums "$whole" $last) <(save_sums "$killed" $last); then
    echo "saves: $((n - 1)) starts killed in a save, the last checkpoint has the bytes of a run that was not"
  else
    failed=1
    echo "saves: the last checkpoint differs from that of a run that was not killed"
  fi
  rm -rf "$whole" "$killed"
}

# shown PART COMMAND...: its output, which is kept as well.
shown() {
  local part=$1
  shift
  echo "== $*"
  timeout 120 "$@" 2>&1 | tee "$out/$part.txt"
  [ "${PIPESTATUS[0]}" -eq 0 ] || { failed=1; echo "two_gpus: $part failed"; }
}

for part in $parts; do
  case $part in
    doctor) shown doctor "$program" doctor --ranks 2 "${flags[@]}" ;;
    links) shown links "$program" bench links --ranks 2 "${flags[@]}" ;;
    train) train ;;
    saves) saves ;;
  esac
done
echo "two_gpus: $SECONDS s, status $failed"
exit $failed
