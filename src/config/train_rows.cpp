#include "config/names.h"
#include "config/rows.h"

namespace octet {
namespace {

using enum OnResume;

constexpr ConfigRow kTrainRows[] = {
    {"train.steps", named, OCTET_FIELD(train.steps), within(1, kMaxSteps), "steps",
     "optimizer steps of the run"},
    {"train.epochs", named, OCTET_FIELD(train.epochs), within(0, 1 << 20), "epochs",
     "sets train.steps: as many as read the training data so often; 0: does not"},
    {"train.batch", step_size, OCTET_FIELD(train.batch), within(1, 1 << 20), "sequences",
     "sequences of one micro-batch"},
    {"train.accumulate", step_size, OCTET_FIELD(train.accumulate), within(1, 1 << 16),
     "micro-batches", "micro-batches of one step"},
    {"train.seed", same, OCTET_FIELD(train.seed), within(0, 4294967295.0), "",
     "seed of initialisation, data order and stochastic rounding (--seed)"},
    {"train.loss",
     same,
     OCTET_FIELD(train.loss),
     {.bounds = {.low = 0, .high = 1e6, .low_open = true}, .names = loss_names, .has_auto = true},
     "",
     "what is minimized: a loss by name, or `{NAME: WEIGHT}` of several, whose weighted sum it is; "
     "auto: the model's own"},
    {"train.label_smoothing", same, OCTET_FIELD(train.label_smoothing), below_one(), "",
     "losses of classes and of tokens: the share of a label that all classes, or tokens, have "
     "alike; dpo, simpo: of pairs that are taken the other way round"},
    {"train.contrastive_temperature", same, OCTET_FIELD(train.contrastive_temperature),
     within(1e-3, 1e3), "", "contrastive: what cosines are divided by"},
    {"train.pairwise_beta", same, OCTET_FIELD(train.pairwise_beta), within(1e-4, 1e3), "",
     "dpo, ipo, pairwise: how strongly the model is held near the reference; simpo: what rewards "
     "are multiplied by; orpo: the weight of the odds ratio"},
    {"train.simpo_gamma", same, OCTET_FIELD(train.simpo_gamma), within(0, 1e3), "",
     "simpo: by how much the chosen answer's reward is to be above the other's"},
    {"train.freeze", same, OCTET_FIELD(train.freeze), any(), "",
     "patterns of parameters that stay as they are, by their names (`*embed_tokens*`, "
     "`model.layers.0.*`): no gradient, no optimizer states; a tied embedding is the head too; "
     "with "
     "lora.rank linears without an adapter"},
    {"train.log_every", open, OCTET_FIELD(train.log_every), within(1, kMaxSteps), "steps",
     "distance of log lines; the first step has one, and what follows half a minute of silence"},
    {"train.eval_every", open, OCTET_FIELD(train.eval_every), within(0, kMaxSteps), "steps",
     "distance of evaluations; 0: at the end only"},
    {"train.eval_bytes", open, OCTET_FIELD(train.eval_bytes), within(1, kMaxBytes), "bytes",
     "validation text of a decoder that one evaluation reads, in bytes of its tokens"},
    {"train.eval_rows", open, OCTET_FIELD(train.eval_rows), within(0, kMaxSteps), "samples",
     "samples of arrays, pictures and encoders' texts that one evaluation reads; 0: all"},
    {"train.sample_prompts", open, OCTET_FIELD(train.sample_prompts), any(), "",
     "texts that the model goes on from while it is trained (samples.jsonl), or with chat.template "
     "messages that it answers; changes no bit of a run"},
    {"train.sample_every", open, OCTET_FIELD(train.sample_every), within(0, kMaxSteps), "steps",
     "distance of such samples; 0: wherever an evaluation is due (eval_every)"},
    {"train.sample_tokens", open, OCTET_FIELD(train.sample_tokens), within(1, 4096), "tokens",
     "of a sample, at most; with its prompt at most model.seq"},
    {"train.sample_temperature", open, OCTET_FIELD(train.sample_temperature), within(0, 100), "",
     "of a sample: 0: always the most probable token; above it tokens are drawn, by train.seed"},
    {"train.save_every", open, OCTET_FIELD(train.save_every), within(0, kMaxSteps), "steps",
     "distance of checkpoints; 0: at the end only"},
    {"train.keep", open, OCTET_FIELD(train.keep), within(1, kMaxSteps), "checkpoints",
     "newest checkpoints kept"},
    {"train.keep_best", open, OCTET_FIELD(train.keep_best), any(), "",
     "save whenever an evaluation finds the lowest validation loss so far, and keep that "
     "checkpoint besides the newest"},
    {"train.async_save", open, OCTET_FIELD(train.async_save), any(), "",
     "write checkpoints in the background of the steps that follow; the last of a run, those of "
     "keep_best and of a signal are waited for"},
    {"train.save_buffer", open, OCTET_FIELD(train.save_buffer), within(4096, kMaxBytes), "bytes",
     "memory of the host, pinned for a GPU, through which async_save copies the state out; where "
     "the state is larger, an update waits until the rest has room (docs/reliability.md)"},
    {"train.patience", named, OCTET_FIELD(train.patience), within(0, kMaxSteps), "evaluations",
     "end the run after so many evaluations in a row without a lower validation loss; 0: never"},
    {"train.export", open, OCTET_CHOICE(train.export_as), one_of(names_of<ExportAs>), "",
     "write the model into export/ of `out` when the run ends, as `octet convert` does, or with "
     "adapter the adapters alone: of the best checkpoint with keep_best, else of the last"},
    {"train.deterministic", named, OCTET_FIELD(train.deterministic), any(), "",
     "only algorithms that give the same bits on every run, on a GPU slower ones "
     "with up to 4 GiB more memory; the CPU's all do"},
    {"train.arithmetic", named, OCTET_CHOICE(train.arithmetic), one_of(names_of<Arithmetic>), "",
     "sums of a CPU's GEMMs: its own in f32, or to the bit those of Hopper's tensor cores, slower"},
    {"train.recompute", named, OCTET_CHOICE(train.recompute), auto_or(names_of<Recompute>), "",
     "activations computed again in the backward pass: none; cheap: norms, activations and "
     "quantized data; full: all; auto: as the recipe asks, or as much as the budget needs"},
    {"train.head_chunk", named, OCTET_FIELD(train.head_chunk), within(0, kMaxBytes), "bytes",
     "head and loss in chunks of rows whose logits take at most this; 0: whole, or as the budget "
     "asks"},
    {"train.memory_budget", named, OCTET_FIELD(train.memory_budget), within(0, kMaxBytes), "bytes",
     "largest planned peak, for which layers are computed again and the head is cut; 0: no limit"},
    {"train.debug_nonfinite", named, OCTET_FIELD(train.debug_nonfinite), any(), "",
     "run a step whose loss or gradient is not finite twice up to its update, and name the first "
     "op, layer and tensor that made such a value; changes no bit of a run"},
    {"train.max_nonfinite_steps", open, OCTET_FIELD(train.max_nonfinite_steps),
     within(1, kMaxSteps), "steps", "steps in a row that may be skipped before the run stops"},
    {"train.max_zero_gradients", open, OCTET_FIELD(train.max_zero_gradients), within(0, kMaxSteps),
     "steps",
     "steps in a row that may have labels and a gradient of 0, or one too short to move a weight, "
     "or ranks whose rows differ and the same loss, before the run stops; and first steps that may "
     "leave all weights where they were; 0: any number"},
    {"train.telemetry_every", open, OCTET_FIELD(train.telemetry_every), within(0, kMaxSteps),
     "steps", "length of the intervals that telemetry.jsonl sums up; 0: none"},
    {"train.telemetry", open, OCTET_FIELD(train.telemetry), within(0, kMaxSteps), "steps",
     "from one sample to the next of what GEMMs and updates read, into telemetry.jsonl; 0: none"},
    {"train.audit", open, OCTET_FIELD(train.audit), within(0, kMaxSteps), "steps",
     "steps from one audit to the next, which recomputes some outputs of GEMMs on the CPU and "
     "compares their bits; 0: none"},
    {"train.on_audit", open, OCTET_CHOICE(train.on_audit), one_of(names_of<OnAudit>), "",
     "what a result with another bit than the CPU's does: a warning, or the run's end"},
    {"train.spike_deviations", open, OCTET_FIELD(train.spike_deviations), within(0, 1e9),
     "deviations", "a loss that stands higher above its running mean is a spike; 0: none is"},
    {"train.spike_window", open, OCTET_FIELD(train.spike_window), within(1, kMaxSteps), "steps",
     "how far back the running mean of the loss looks"},
    {"train.tensorboard", open, OCTET_FIELD(train.tensorboard), any(), "",
     "event files for TensorBoard beside metrics.jsonl"},
};

static_assert(are_bounded(kTrainRows));

}  // namespace

std::span<const ConfigRow> train_rows() {
  return kTrainRows;
}

}  // namespace octet
