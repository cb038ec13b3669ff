#!/usr/bin/env bash
# Whether two GPUs that NCCL connects train what two that read each other's memory train, in one call of about five minutes:
#
#   DATA=FILE [OUT=two_gpus_nccl] [PROGRAM=build/octet] [OCTET_NCCL=libnccl.so.2] tools/two_gpus_nccl.sh [doctor] [bits] [hosts] [levels] [replay] [errors]
#
# doctor: `octet doctor --ranks 2` over peers and over NCCL, every collective of every type verified.
# bits:   a small model, recipes RECIPES (coat fp32 fp8_lm) and stages STAGES, over peers and over NCCL: the losses' bits and the
#         checkpoint's hashes are the same.
# hosts:  the same with two processes as two hosts: NCCL_HOSTID, NCCL_SOCKET_IFNAME=lo; NCCL's log says NET/Socket, and no P2P.
# levels: four processes as two hosts of two, which share a GPU: they say so, and stages have the same bits.
# replay: 200 steps replayed from CUDA graphs and 200 launched ones (train.debug_nonfinite records none) over NCCL end in the same bits.
# errors: a rank that is killed, and one that is stopped, end the run in a line that names it; so do a library that is not there,
#         and transport peer between two hosts.
# Without a word: all. What fails does not stop the rest. Prints a table, writes OUT/two_gpus_nccl.csv; status 1 where a part failed.
# Where OCTET_NCCL is not set, PyTorch's or the system's libnccl.so.2 is looked for. DEVICE=emulated with an emulated module beside
# PROGRAM tries the script without GPUs.
set -uo pipefail
cd "$(dirname "$0")/.."
out=${OUT:-two_gpus_nccl} program=${PROGRAM:-build/octet} data=${DATA:-} device=${DEVICE:-cuda}
recipes=${RECIPES:-coat fp32 fp8_lm} stages=${STAGES:-gradients optimizer parameters none} parts=${*:-doctor bits hosts levels replay errors}
for part in $parts; do
  case $part in
    doctor | bits | hosts | levels | replay | errors) ;;
    *) sed -n '2,/^set /{/^# \{0,1\}/s/^# \{0,1\}//p}' "$0"; exit 2 ;;
  esac
done
[ -r "$data" ] || { echo "two_gpus_nccl: expected DATA=FILE, a text, got '$data'" >&2; exit 2; }
data=$(realpath "$data") program=$(realpath "$program")
mkdir -p "$out"
out=$(realpath "$out") csv=$out/two_gpus_nccl.csv failed=0 port=$((20000 + RANDOM % 20000))
echo "part,case,state,seconds,detail" >"$csv"

if [ -z "${OCTET_NCCL:-}" ] && [ "$device" = cuda ]; then
  OCTET_NCCL=$(python3 - 2>/dev/null <<'P'
import glob, importlib.util, os
for name in ("nvidia.nccl", "torch"):
    spec = importlib.util.find_spec(name)
    for folder in (spec.submodule_search_locations or []) if spec else []:
        for found in glob.glob(os.path.join(folder, "lib", "libnccl.so.2")):
            print(found); raise SystemExit
P
  )
  [ -n "$OCTET_NCCL" ] && export OCTET_NCCL || unset OCTET_NCCL
fi
echo "two_gpus_nccl: NCCL: ${OCTET_NCCL:-as the system finds it}"
export OCTET_JOIN_SECONDS=60

# note PART CASE STATE SECONDS DETAIL
note() {
  echo "$1,$2,${3//,/;},$4,${5//,/;}" >>"$csv"
  [ "$3" = ok ] || failed=1
  echo "[$SECONDS s] $1: $2: $3 ${5}"
}

if [ "$device" = cuda ]; then
  shape=(--set model.hidden=512 --set model.layers=4 --set model.heads=8 --set model.ffn=1408 --set model.seq=512 --set train.batch=4)
  steps=30
else
  shape=(--set model.hidden=64 --set model.layers=2 --set model.heads=4 --set model.ffn=176 --set model.seq=32 --set train.batch=1)
  steps=3
fi
shape+=(--set model.kind=llama --set model.vocab=256 --set optim.lr=2e-3 --set optim.warmup=1 --set data.val_fraction=0.1
  --set train.eval_every=0 --set train.eval_bytes=128 --set train.save_every=0 --set train.deterministic=true)
config=$out/config.yaml
echo "data: {train: [$data]}" >"$config"

# The bits of what a run learned: of its losses and of its last checkpoint's tensors.
bits() {
  python3 - "$1" <<'P'
import glob, hashlib, json, sys
folder = sys.argv[1]
try:
    rows = [json.loads(line) for line in open(folder + "/metrics.jsonl")]
except OSError:
    sys.exit("no metrics")
losses = [row["loss"] for row in rows if "loss" in row]
if not losses or not losses[-1] < losses[0] or not all(row.get("grad_norm", 1) > 0 for row in rows):
    sys.exit("the loss did not fall")
last = sorted(glob.glob(folder + "/ckpt/step-*"))[-1]
parts = [hashlib.sha256(repr(losses).encode()).hexdigest()[:12]]
for kind in ("model", "optim"):
    parts.append(hashlib.sha256(open(f"{last}/{kind}.safetensors", "rb").read()).hexdigest()[:12])
print(*parts, f"loss {losses[0]:.4f} -> {losses[-1]:.4f}")
P
}

# train FOLDER WORDS...: two ranks of this host; status of the program.
train() {
  local folder=$1
  shift
  rm -rf "$folder"
  timeout 120 "$program" train "$config" "${shape[@]}" --set "train.steps=$steps" --device cuda --ranks 2 --set "out=$folder" "$@" \
    >"$folder.log" 2>&1
}
# on_hosts FOLDER WORDS...: two processes, each as a host of its own.
on_hosts() {
  local folder=$1
  shift
  rm -rf "$folder"
  port=$((port + 3))
  local common=(WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=$port NCCL_SOCKET_IFNAME=lo NCCL_IB_DISABLE=1 NCCL_DEBUG=INFO)
  local words=(train "$config" "${shape[@]}" --set "train.steps=$steps" --device cuda --set "out=$folder" "$@")
  env "${common[@]}" RANK=1 LOCAL_RANK=1 OCTET_HOST=b NCCL_HOSTID=hostb timeout 120 "$program" "${words[@]}" >"$folder.1.log" 2>&1 &
  second=$!
  env "${common[@]}" RANK=0 LOCAL_RANK=0 OCTET_HOST=a NCCL_HOSTID=hosta timeout 120 "$program" "${words[@]}" >"$folder.log" 2>&1
  local status=$?
  wait $second
  return $status
}

# on_hosts_of_two FOLDER WORDS...: four processes as two hosts of two ranks, which share their host's GPU.
on_hosts_of_two() {
  local folder=$1 rank ranks=()
  shift
  rm -rf "$folder"
  port=$((port + 5))
  local common=(WORLD_SIZE=4 MASTER_ADDR=127.0.0.1 MASTER_PORT=$port NCCL_SOCKET_IFNAME=lo NCCL_IB_DISABLE=1 OCTET_SHARE_GPU=1)
  local hosts=(a a b b) logs=("$folder.log" "$folder.1.log" "$folder.2.log" "$folder.3.log")
  for rank in 0 1 2 3; do
    env "${common[@]}" RANK=$rank LOCAL_RANK=$((rank % 2)) OCTET_HOST=${hosts[rank]} NCCL_HOSTID=host${hosts[rank]} \
      CUDA_VISIBLE_DEVICES=$((rank / 2)) timeout 120 "$program" train "$config" "${shape[@]}" --set "train.steps=$steps" \
      --device cuda --set "out=$folder" "$@" >"${logs[rank]}" 2>&1 &
    ranks+=($!)
  done
  wait "${ranks[@]}"
}

# state_of FOLDER: ok where a run learned.
state_of() {
  if bits "$1" >/dev/null 2>&1; then echo ok; else echo "no run: $(grep -ah '^octet' "$1.log" | tail -1)"; fi
}

# same PART CASE BEGIN FOLDER WANTED: notes whether the run has these bits.
same() {
  local got state=ok
  if ! got=$(bits "$4" 2>&1); then state=$(state_of "$4")
  elif [ "$got" != "$5" ]; then state="other bits than $5"; fi
  note "$1" "$2" "$state" $((SECONDS - $3)) "$got"
}

doctor() {
  for transport in peer nccl; do
    local begin=$SECONDS state=ok
    timeout 100 "$program" doctor --ranks 2 --device cuda --set parallel.transport=$transport >"$out/doctor-$transport.txt" 2>&1 ||
      state="status $?"
    cat "$out/doctor-$transport.txt"
    note doctor $transport "$state" $((SECONDS - begin)) "$(grep -a transport "$out/doctor-$transport.txt" | tr -s ' ' | head -1)"
  done
}

reference() { # RECIPE: the bits of peers, made once
  local folder=$out/peer-$1
  [ -d "$folder" ] || train "$folder" --set "recipe=$1" --set parallel.transport=peer $(strict "$1")
  bits "$folder" 2>&1
}
strict() { [ "$1" = fp32 ] && echo "--set parallel.strict=true"; }

bits_part() {
  for recipe in $recipes; do
    local begin=$SECONDS wanted
    wanted=$(reference "$recipe")
    note bits "$recipe peer" "$(state_of "$out/peer-$recipe")" $((SECONDS - begin)) "$wanted"
    for stage in $stages; do
      # Stage none keeps other last bits of 8-bit moments, whose tensors are not padded: its own run over peers is the reference.
      local want=$wanted
      if [ "$stage" = none ] && [ "$recipe" = coat ]; then
        train "$out/peer-none" --set "recipe=$recipe" --set parallel.shard=none --set parallel.transport=peer
        want=$(bits "$out/peer-none" 2>&1)
      fi
      begin=$SECONDS
      train "$out/nccl" --set "recipe=$recipe" --set "parallel.shard=$stage" --set parallel.transport=nccl $(strict "$recipe")
      same bits "$recipe $stage nccl" $begin "$out/nccl" "$want"
    done
  done
  grep -a "NCCL" "$out/nccl.log" | head -3
}

hosts() {
  local recipe=${recipes%% *} begin wanted
  wanted=$(reference "$recipe")
  for stage in gradients parameters; do
    begin=$SECONDS
    on_hosts "$out/hosts-$stage" --set "recipe=$recipe" --set "parallel.shard=$stage" $(strict "$recipe")
    same hosts "$recipe $stage" $begin "$out/hosts-$stage" "$wanted"
  done
  [ "$device" = cuda ] || return
  local sockets p2p
  sockets=$(grep -ac "via NET/Socket" "$out/hosts-gradients.log") p2p=$(grep -aEc "via P2P|via SHM" "$out/hosts-gradients.log")
  note hosts "NCCL's log" "$([ "$sockets" -gt 0 ] && [ "$p2p" -eq 0 ] && echo ok || echo "not by sockets alone")" 0 \
    "$sockets channels via NET/Socket and $p2p via P2P or SHM; NVLS lines: $(grep -aic 'nvls.*enabled\|NVLS multicast support is available' "$out/hosts-gradients.log")"
}

levels() {
  local recipe=${recipes%% *} begin wanted=
  for stage in gradients optimizer parameters; do
    begin=$SECONDS
    on_hosts_of_two "$out/levels-$stage" --set "recipe=$recipe" --set "parallel.shard=$stage"
    [ -n "$wanted" ] || wanted=$(bits "$out/levels-$stage" 2>&1)
    same levels "$recipe $stage" $begin "$out/levels-$stage" "$wanted"
  done
  local said
  said=$(grep -ahE "within 2 hosts of 2, NCCL" "$out/levels-gradients.log" | head -1)
  note levels "transport" "$([ -n "$said" ] && echo ok || echo "not in two levels")" 0 "$said"
}

replay() {
  local begin=$SECONDS wanted before=$steps
  [ "$device" = cuda ] && steps=200
  train "$out/replayed" --set recipe=coat --set parallel.transport=nccl
  wanted=$(bits "$out/replayed" 2>&1)
  note replay "$steps replayed" "$(state_of "$out/replayed")" $((SECONDS - begin)) "$wanted"
  begin=$SECONDS
  train "$out/launched" --set recipe=coat --set parallel.transport=nccl --set train.debug_nonfinite=true
  same replay "$steps launched" $begin "$out/launched" "$wanted"
  steps=$before
}

# ends CASE FOLDER BEGIN PATTERN SECONDS: whether a log has the line, in time.
ends() {
  local line passed state=ok
  until grep -aqhE "$4" "$2".log "$2".1.log 2>/dev/null || [ $((SECONDS - $3)) -gt "$5" ]; do sleep 0.2; done
  passed=$((SECONDS - $3))
  line=$(grep -ahE "$4" "$2".log "$2".1.log 2>/dev/null | head -1)
  [ -n "$line" ] || state="no such line: $(grep -ah '^octet' "$2".log "$2".1.log 2>/dev/null | head -2 | tr '\n' ' ')"
  [ "$passed" -le "$5" ] || state="$state, $passed s"
  note errors "$1" "$state" "$passed" "$line"
}

# gone SIGNAL SECONDS: one of two hosts' ranks is killed or stopped in the middle of a long run.
gone() {
  local folder=$out/gone-$1 before=$steps begin
  steps=100000
  port=$((port + 3)) # on_hosts counts in its own shell here
  on_hosts "$folder" --set recipe=coat --set train.save_every=20 2>/dev/null &
  local run=$!
  for _ in $(seq 300); do [ "$(cat "$folder/metrics.jsonl" 2>/dev/null | wc -l)" -gt 30 ] && break; sleep 0.2; done
  begin=$SECONDS
  local victim
  victim=$(pgrep -f -- "$(basename "$program") train .*out=$folder" | while read -r pid; do
    tr '\0' '\n' <"/proc/$pid/environ" 2>/dev/null | grep -qx RANK=1 && [ "$(cat "/proc/$pid/comm")" != timeout ] && echo "$pid"
  done | head -1)
  [ -n "$victim" ] && kill "-$1" "$victim"
  ends "SIG$1" "$folder" $begin "octet: \[ranks\] rank 1 ended" "$2"
  [ -n "$victim" ] && kill -KILL "$victim" 2>/dev/null
  wait $run
  steps=$before
}

errors() {
  gone KILL 30
  gone STOP 45
  local begin=$SECONDS
  OCTET_NCCL=/nowhere/libnccl.so.2 train "$out/missing" --set recipe=coat --set parallel.transport=nccl
  ends "no library" "$out/missing" $begin "expected NCCL" 30
  begin=$SECONDS
  on_hosts "$out/refused" --set recipe=coat --set parallel.transport=peer
  ends "peer between hosts" "$out/refused" $begin "parallel.transport: expected nccl or auto" 30
}

for part in $parts; do
  case $part in
    doctor) doctor ;;
    bits) bits_part ;;
    hosts) hosts ;;
    levels) levels ;;
    replay) replay ;;
    errors) errors ;;
  esac
done
column -s, -t "$csv" 2>/dev/null || cat "$csv"
echo "two_gpus_nccl: $SECONDS s, status $failed"
exit $failed
