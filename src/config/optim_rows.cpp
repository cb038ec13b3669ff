#include "config/names.h"
#include "config/rows.h"
#include "optim/state_format.h"

namespace octet {
namespace {

using enum OnResume;

constexpr ConfigRow kOptimRows[] = {
    {"optim.kind", same, OCTET_CHOICE(optim.kind), one_of(names_of<UpdateKind>), "",
     "rule of the updates: adamw; sgd, with momentum; lamb, adamw's at each weight's own length; "
     "muon, of the layers' matrices, with adamw for embeddings, the head and vectors"},
    {"optim.rules", same, OCTET_FIELD(optim.rules), above(0, 1000), "",
     "list of {match: PATTERN, kind: RULE, lr: SHARE} for parameters by name "
     "(`*.norm.weight`), at a share of the learning rate; later lines win"},
    {"optim.momentum", named, OCTET_FIELD(optim.momentum), below_one(), "",
     "sgd and muon: decay of the running sum of gradients; 0: sgd keeps none"},
    {"optim.dampening", named, OCTET_FIELD(optim.dampening), within(0, 1), "",
     "sgd: what new gradients lack in that sum"},
    {"optim.nesterov", named, OCTET_CHOICE(optim.nesterov), auto_or(boolean_names), "",
     "steps along the gradient plus momentum times the new sum; auto: muon does, sgd does not"},
    {"optim.muon_scale", named, OCTET_CHOICE(optim.muon_scale), one_of(names_of<MuonScale>), "",
     "muon: factor of an orthogonal update, 0.2 sqrt(max(rows, cols)), with which one learning "
     "rate "
     "serves adamw too, or sqrt(max(1, rows / cols))"},
    {"optim.lr", named, OCTET_FIELD(optim.lr), above(0, 1000), "", "peak learning rate"},
    {"optim.schedule", named, OCTET_CHOICE(optim.schedule), one_of(names_of<ScheduleKind>), "",
     "shape of the learning rate after the warm-up"},
    {"optim.warmup", named, OCTET_FIELD(optim.warmup), within(0, kMaxSteps), "steps",
     "linear rise from 0 to lr; a tenth of a shorter run, unless --set or the steps' file says it"},
    {"optim.warmup_share", named, OCTET_FIELD(optim.warmup_share), within(0, 1),
     "share of the steps", "sets optim.warmup, once the number of steps is known; 0: does not"},
    {"optim.final_lr", named, OCTET_FIELD(optim.final_lr), within(0, 1), "share of lr",
     "learning rate at the last step; 0: reached one step behind it, so that every step trains"},
    {"optim.schedule_version", named, OCTET_FIELD(optim.schedule_version), within(1, 2), "",
     "1: as runs begun before had it, whose last step has rate 0 where final_lr is 0, and whose "
     "first step without a warm-up is one behind lr; those resume with it"},
    {"optim.decay_share", named, OCTET_FIELD(optim.decay_share), within(0, 1), "share of the steps",
     "wsd: the last steps, in which the learning rate falls; no more than the warm-up leaves"},
    {"optim.betas", named, OCTET_FIELD(optim.betas), below_one(), "",
     "decay of AdamW's two moments, below 1 in f32 too"},
    {"optim.eps", named, OCTET_FIELD(optim.eps), within(kMinEps, 1), "", "AdamW's epsilon"},
    {"optim.weight_decay", named, OCTET_FIELD(optim.weight_decay), within(0, 1000), "",
     "decay (sgd: added to the gradient, others decoupled), of linears and untied heads; not of "
     "norms, biases, embeddings, position "
     "tables and tied heads"},
    {"optim.clip", named, OCTET_FIELD(optim.clip), within(0, 1e30), "",
     "largest global gradient norm; 0: no clipping"},
    {"optim.state_m", same, OCTET_FIELD(optim.state_m), auto_or(run_state_format_names), "",
     "format of the first moment or the momentum, +x with range expansion, _sr rounded "
     "stochastically; auto: by "
     "recipe"},
    {"optim.state_v", same, OCTET_FIELD(optim.state_v), auto_or(run_state_format_names), "",
     "format of the second moment, +x with range expansion, _sr rounded stochastically; auto: by "
     "recipe"},
    {"optim.group", same, OCTET_FIELD(optim.group), one_of(group_names), "elements",
     "group of a quantized moment"},
    {"optim.f32_below", same, OCTET_FIELD(optim.f32_below), within(0, kMaxBytes), "elements",
     "moments of tensors with fewer elements stay f32; 0: none do"},
    {"optim.master", same, OCTET_CHOICE(optim.master), auto_or(names_of<Master>), "",
     "master weights: f32, BF16 plus a 16-bit remainder (exact), BF16 or FP16 weights alone, or "
     "FP16 with a scale a tensor beside BF16 weights, the last three rounded stochastically; auto: "
     "by recipe"},
    {"optim.math", named, OCTET_CHOICE(optim.math), one_of(names_of<PowerMath>), "",
     "powers of the range expansion: the machine's, or the same bits everywhere"},
};
static_assert(are_bounded(kOptimRows));

}  // namespace

std::span<const ConfigRow> optim_rows() {
  return kOptimRows;
}

}  // namespace octet
