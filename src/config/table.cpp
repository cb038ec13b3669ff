#include "config/table.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "config/names.h"
#include "config/rows.h"

namespace octet {
namespace {

using enum OnResume;

constexpr ConfigChoice kActivations = {
    [](RunConfig& config, std::string_view name) {
      set_choice(config.recipe.activations, name == "wide" ? "bf16" : name);
    },
    [](RunConfig& config) {
      const std::optional<Dtype>& kept = config.recipe.activations;
      return kept == Dtype::bf16 ? "wide" : choice_name(kept);
    }};
// 1xG is told by G.
constexpr ConfigChoice kActivationGroup = {
    [](RunConfig& config, std::string_view name) {
      const bool is_block = name.find('x') != std::string_view::npos;
      config.recipe.activation_group =
          find_granularity(is_block ? std::string(name) : fmt::format("1x{}", name)).value();
    },
    [](RunConfig& config) {
      const Granularity& group = config.recipe.activation_group;
      return group.kind == Granularity::Kind::block ? granularity_name(group)
                                                    : std::to_string(group.size);
    }};
constexpr ConfigChoice kScaledGradient = {
    [](RunConfig& config, std::string_view name) {
      config.recipe.scaled_gradient = dtype_from_name(name);
    },
    [](RunConfig& config) {
      const std::optional<Dtype>& format = config.recipe.scaled_gradient;
      return std::string(format ? dtype_name(*format) : "none");
    }};

constexpr ConfigRow kModelRows[] = {
    {"model.path", open, OCTET_FIELD(model.path), any(), "",
     "folder of a model (Hugging Face layout) to start from; replaces the shape keys, but for "
     "model.head"},
    {"model.allow_nonfinite", open, OCTET_FIELD(model.allow_nonfinite), any(), "",
     "take weights of model.path that are NaN or Inf, or beyond FP16 where it computes in FP16; "
     "without it they are refused"},
    {"model.seq", same, OCTET_FIELD(model.seq), within(1, 1 << 24), "tokens",
     "sequence length; of models that translate the longest target"},
    {"model.source_seq", same, OCTET_FIELD(model.source_seq), within(1, 1 << 24), "tokens",
     "models that translate: longest source, which all are padded to"},
    {"model.images", same, OCTET_FIELD(model.images), within(1, 256), "",
     "llava: pictures that a row of tokens has room for; the tower sees as many of each row"},
};

constexpr ConfigRow kRecipeRows[] = {
    {"recipe.base", same, OCTET_FIELD(recipe.base), one_of(recipe_names), "",
     "precision recipe; `recipe: NAME` is short for it"},
    {"recipe.scaling", same, OCTET_CHOICE(recipe.scaling), auto_or(names_of<Scaling>), "",
     "per-tensor scales of inputs and gradients from this step's maximum, or from the last 16 "
     "steps'; periodic: of weights too, powers of two made anew every 10 steps; none: 1; auto: "
     "current, delayed in coat-fast"},
    {"recipe.weight_copy", same, OCTET_CHOICE(recipe.weight_copy), auto_or(names_of<WeightCopy>),
     "",
     "what is kept of 8-bit weights between updates: per_use: nothing; scale: scales; per_step, "
     "w_only: codes too, of W and its transpose or of W; auto: scale, but per_step in coat-fast "
     "and "
     "coat-static, per_use in scalify_fp8"},
    {"recipe.compute", same, OCTET_CHOICE(recipe.compute), auto_or(compute_names), "",
     "type of what recipes of eight bits do not quantize: bf16 or fp16 (coat-static: bf16 alone); "
     "with fp16 values of scalify_fp8 carry scales; unit_scaling takes bf16 or fp16, every other "
     "recipe its own type alone; auto: bf16, or that type"},
    {"recipe.activations", same, kActivations, auto_or(activation_names), "",
     "format in which recipes of eight bits keep inputs of norms and activations, in groups of 16; "
     "wide: as they are, the one choice of other recipes and of scalify_fp8; auto: e4m3 in coat, "
     "coat-fast and coat-static (its one choice), else wide"},
    {"recipe.activation_scale", same, OCTET_CHOICE(recipe.activation_scale),
     one_of(names_of<ActivationScale>), "",
     "coat-static: scales of what activations read from a linear (gate, up): of groups of 16, or "
     "one that is predicted, with which a GPU's GEMM stores E4M3 itself"},
    {"recipe.activation_group", same, kActivationGroup, one_of(activation_group_names), "elements",
     "that share a scale where activations are kept in eight bits: of a row, or of as many rows, "
     "too"},
    {"recipe.saved_attention", same, OCTET_CHOICE(recipe.saved_attention),
     one_of(names_of<SavedAttention>), "",
     "what of attention the backward pass keeps in the groups of recipe.activations: nothing, "
     "queries, keys and values, or its output too"},
    {"recipe.forward_reads", named, OCTET_CHOICE(recipe.forward_reads),
     one_of(names_of<ForwardReads>), "",
     "what norms and activations of the forward pass read of activations that are kept in groups: "
     "these unquantized, or as stored, which runs begun before had and resume with"},
    {"recipe.gradient_rounding", same, OCTET_CHOICE(recipe.gradient_rounding),
     one_of(gradient_rounding_names), "",
     "of quantized gradients: to nearest; in HiFloat8 to nearest with ties to even (rne) in the "
     "place of ties away, or its hybrid with stochastic rounding (hr); stochastic (sr) in every "
     "format with one scale a tensor"},
    {"recipe.block_scale", named, OCTET_CHOICE(recipe.block_scale), one_of(names_of<BlockScale>),
     "",
     "scales of operands in blocks: the largest magnitude becomes the largest code, in f32, or the "
     "power of two above, which runs begun before had and resume with"},
    {"recipe.accumulation", named, OCTET_CHOICE(recipe.accumulation),
     auto_or(names_of<Accumulation>), "",
     "FP8 GEMMs on tensor cores that shorten sums (fast; promoted: each 128 products are added in "
     "f32): none fast, the forward ones, or all; auto: forward ones, and input gradients of "
     "coat-fast and coat-static, up to 16,384 products; runs begun before resume with theirs"},
    {"recipe.mx_scale", same, OCTET_CHOICE(recipe.mx_scale), one_of(names_of<MxScale>), "",
     "mxfp8: scales to the power of two above, or as in OCP MX 1.0 below, where elements saturate"},
    {"recipe.rescale", same, OCTET_CHOICE(recipe.rescale), one_of(names_of<DynamicRescale>), "",
     "where values carry propagated scales: what takes its norm, measured in the step, into its "
     "scale: the gradients that leave norms, and those of parameters"},
    {"recipe.scale_rounding", same, OCTET_CHOICE(recipe.scale_rounding),
     one_of(names_of<ScaleRounding>), "",
     "there too: how scales become powers of two: the nearest to the predicted RMS; or that of a "
     "rounded scale, to the nearest, down as published (paper), or up"},
    {"recipe.scaled_gradient", same, kScaledGradient, one_of(scaled_gradient_names), "",
     "there too: what parameters' gradients are rounded to at own scales before the update"},
    {"recipe.calibrate", named, OCTET_FIELD(recipe.calibrate), any(), "",
     "propagated scales: operands that do not fit are rescaled before the first step (before) or "
     "after this one, and at each recheck; 0: never; auto: before with model.path, else recheck"},
    {"recipe.weight_rms", named, OCTET_CHOICE(recipe.weight_rms), auto_or(names_of<WeightRms>), "",
     "of weights, for propagated scales; init: as runs had it; auto: loaded with model.path"},
    {"recipe.recheck", named, OCTET_FIELD(recipe.recheck), within(0, kMaxSteps), "steps",
     "between looks at GEMM operands: what saturates or has left its window is told, and rescaled "
     "unless recipe.calibrate is 0; with measured scales told alone"},
    {"recipe.edge_scales", named, OCTET_FIELD(recipe.edge_scales), any(), "",
     "of recipes with propagated scales: list of `layers.3.down_proj.x=-2`: the operand's data (x, "
     "w, dy; y of results in codes; * in names) times 2^-2; a checkpoint has its own"},
    {"recipe.loss_scaling", same, OCTET_CHOICE(recipe.loss_scaling), one_of(names_of<LossScaling>),
     "",
     "of gradients by a power of two, which halves when one overflows and doubles after some "
     "steps without: a fixed number (global), or one that follows the run (adaptive)"},
    {"recipe.loss_scale", same, OCTET_FIELD(recipe.loss_scale), within(0, kMaxLossScale), "",
     "its first value, a power of two; 0: 65536, with adaptive loss scaling 2^32"},
    {"recipe.loss_growth", same, OCTET_FIELD(recipe.loss_growth), within(1, 1 << 20), "steps",
     "global loss scaling: good steps after which the scale doubles"},
    {"recipe.strict_fusion", open, OCTET_FIELD(recipe.strict_fusion), any(), "",
     "a fusion that did not fire is an error"},
    {"recipe.tf32", same, OCTET_FIELD(recipe.tf32), any(), "",
     "fp32 on a GPU: GEMMs round their factors to TF32 (10 bits of significand), "
     "which is faster"},
    {"recipe.override", same, OCTET_FIELD(recipe.overrides), any(), "",
     "map from a name pattern (`layers.0.*`, `*.down_proj`) to a recipe, or to formats by role: "
     "`{x: e4m3, w: e4m3/128x128, dy: e5m2}` (/row, /1xG or /BxB: a scale a row, or for each "
     "block, as recipe.block_scale says; `none`: as the recipe computes) and `sums: fast` or "
     "`promoted`; later lines win; linears in no layer (`lm_head`, an encoder's "
     "`patch_embeddings.projection`, `classifier`) by name alone"},
};

constexpr ConfigRow kDataRows[] = {
    {"data.train", open, WeightedFiles{OCTET_FIELD(data.train), OCTET_FIELD(data.train_weights)},
     above(0, 1000), "",
     "text, token shards (.npy, .bin), conversations (with chat.template), or folders of them; of "
     "other inputs arrays (.safetensors) or pictures; {path: FILE, weight: W} is read W times an "
     "epoch"},
    {"data.val", open, OCTET_FIELD(data.val), any(), "", "the same for validation"},
    {"data.targets", open, OCTET_FIELD(data.targets), any(), "",
     "models that translate: files whose lines are the targets of the lines of data.train's; "
     "without it data.train has both (.tsv, .jsonl), by data.fields.text and data.fields.pair"},
    {"data.val_targets", open, OCTET_FIELD(data.val_targets), any(), "", "the same of data.val"},
    {"data.source_prefix", same, OCTET_FIELD(data.source_prefix), any(), "",
     "models that translate: text before each source, `translate English to German: ` for example"},
    {"data.val_fraction", same, OCTET_FIELD(data.val_fraction), within(0, 0.5), "",
     "share of the end of the training data that is not trained on: the validation data, or with "
     "data.val nothing (there 0 unless said)"},
    {"data.tokenizer", open, OCTET_FIELD(data.tokenizer), any(), "",
     "`bytes`, or a tokenizer file"},
    {"data.token_bytes", open, OCTET_FIELD(data.token_bytes), one_of(token_byte_names),
     "bytes a token",
     "width of a token in shards without a header; 0: 2 up to a vocabulary of 65,536, else 4"},
    {"data.document_separator", open, OCTET_FIELD(data.document_separator), any(), "",
     "text between the documents of a file; empty: a file is a document"},
    {"data.document_boundaries", same, OCTET_CHOICE(data.document_boundaries),
     one_of(names_of<DocumentBoundaries>), "",
     "whether the first token of a document is predicted from the document before it; isolate: "
     "nor does a token see another document of its row, and positions begin anew"},
    {"data.shuffle", same, OCTET_FIELD(data.shuffle), any(), "",
     "false is short for `sampling: sequential`"},
    {"data.sampling", same, OCTET_CHOICE(data.sampling), auto_or(names_of<WindowOrder>), "",
     "each window once an epoch in shuffled order, windows at random places, or in order; "
     "auto: by shuffle"},
    {"data.pack", same, OCTET_FIELD(data.pack), any(), "",
     "rows of whole documents, as many as fit, that do not see each other; else rows are cut from "
     "the stream of text, or hold one conversation"},
    {"data.buckets", same, OCTET_FIELD(data.buckets), within(1, 8), "lengths",
     "lengths that rows of one conversation come in, found so that least of them is padding, at "
     "most model.seq; the rows of a step have one length; 1: all are as long as model.seq. Of "
     "pairs of texts: pairs of lengths, and of shorter pairs a batch has more, as many as hold the "
     "tokens of train.batch full ones"},
    {"data.too_long", same, OCTET_CHOICE(data.too_long), one_of(names_of<TooLong>), "",
     "what becomes of a document or conversation that does not fit into a row, with pack or chat "
     "data"},
    {"data.text_end", same, OCTET_FIELD(data.text_end), any(), "",
     "a text among conversations ends with the tokenizer's end of text, which is trained"},
    {"data.stride", same, OCTET_FIELD(data.stride), within(0, 1 << 20), "tokens",
     "questions: what windows of a context that does not fit into a row have in common, at most "
     "half of a window"},
    {"data.chat.template", same, OCTET_FIELD(data.chat.chat_template), any(), "",
     "the data is conversations, in this chat template: a file or model folder, `chatml`, `plain`, "
     "or auto: the model's, else one of these; none: the data is text"},
    {"data.chat.messages", open, OCTET_FIELD(data.chat.messages), any(), "",
     "key of a list of messages"},
    {"data.chat.role", open, OCTET_FIELD(data.chat.role), any(), "", "key of a message's role"},
    {"data.chat.content", open, OCTET_FIELD(data.chat.content), any(), "",
     "key of a message's text"},
    {"data.chat.conversations", open, OCTET_FIELD(data.chat.conversations), any(), "",
     "key of a list of messages with `from` and `value`"},
    {"data.chat.instruction", open, OCTET_FIELD(data.chat.instruction), any(), "",
     "key of an instruction"},
    {"data.chat.input", open, OCTET_FIELD(data.chat.input), any(), "",
     "key of an instruction's input"},
    {"data.chat.output", open, OCTET_FIELD(data.chat.output), any(), "",
     "key of an instruction's answer"},
    {"data.chat.prompt", open, OCTET_FIELD(data.chat.prompt), any(), "", "key of a prompt"},
    {"data.chat.completion", open, OCTET_FIELD(data.chat.completion), any(), "",
     "key of a prompt's answer"},
    {"data.chat.text", open, OCTET_FIELD(data.chat.text), any(), "",
     "key of a text, which is trained whole"},
    {"data.chat.arguments", same, OCTET_CHOICE(data.chat.arguments),
     one_of(names_of<CallArguments>), "",
     "arguments of a call that are JSON text: parse, a template gets what it means, as servers "
     "give it; keep: the text"},
    {"data.fields.text", open, OCTET_FIELD(data.fields.text), any(), "",
     "texts with labels: key or column of a text, or of the first of two; auto: a name that public "
     "data sets use (text, sentence, sentence1, premise, question1, ...)"},
    {"data.fields.pair", open, OCTET_FIELD(data.fields.pair), any(), "",
     "of the second of two; none: texts are single; auto: by the first one's name (sentence2, "
     "hypothesis, question2, ...), none where data.fields.text is named"},
    {"data.fields.label", open, OCTET_FIELD(data.fields.label), any(), "",
     "of what is said of them, a class or a number; auto: label, score or the like; none: of pairs "
     "that all mean the same (contrastive)"},
    {"data.fields.negatives", open, OCTET_FIELD(data.fields.negatives), any(), "",
     "contrastive: texts that do not mean the same as a pair, which all pairs of a micro-batch are "
     "told from; auto: negative, negative_1, negative_2, ... where the first file has them"},
    {"data.fields.partners", open, OCTET_FIELD(data.fields.partners), any(), "",
     "contrastive: labels of the pairs that mean the same, such as [1]; other pairs are left out"},
    {"data.mask.share", same, OCTET_FIELD(data.mask.share), above(0, 1), "",
     "share of a text's tokens that masked_token predicts: of them 80 % are hidden behind the mask "
     "token, 10 % become any token, 10 % stay"},
    {"data.spans.share", same, OCTET_FIELD(data.spans.share), within(0, 0.99), "",
     "models that translate: above 0 the data is text, of which this share is left out of the "
     "source, a sentinel (<extra_id_0>, ...) in the place of each span, and is the target"},
    {"data.spans.length", same, OCTET_FIELD(data.spans.length), within(1, 1000), "tokens",
     "mean length of these spans"},
    {"data.images.size", same, OCTET_FIELD(data.images.size), within(0, 1 << 14), "pixels",
     "of the shorter side of a picture before it is cropped to the model's size; 0: that size"},
    {"data.images.stretch", same, OCTET_FIELD(data.images.stretch), any(), "",
     "each side becomes as long, whatever the picture's shape, and not the shorter one alone"},
    {"data.images.filter", same, OCTET_CHOICE(data.images.filter), one_of(names_of<ImageFilter>),
     "", "how pictures are resized, as Pillow does it"},
    {"data.images.crop", same, OCTET_CHOICE(data.images.crop), one_of(names_of<ImageCrop>), "",
     "which part of a picture a model sees: the middle square, or in training one at random, or a "
     "part of random size and shape, resized"},
    {"data.images.pad", same, OCTET_FIELD(data.images.pad), within(0, 1 << 12), "pixels",
     "black border around a picture of which a random square is cropped"},
    {"data.images.scale", same, OCTET_FIELD(data.images.scale), above(0, 1), "",
     "random_resized: the least and the largest area, as a share of the picture's"},
    {"data.images.ratio", same, OCTET_FIELD(data.images.ratio), within(1e-2, 1e2), "",
     "random_resized: the least and the largest width over height"},
    {"data.images.flip", same, OCTET_FIELD(data.images.flip), any(), "",
     "in training, each picture by chance from left to right"},
    {"data.images.mean", same, OCTET_FIELD(data.images.mean), within(-1e3, 1e3), "",
     "subtracted from pixels in [0, 1]; one number, or one for each channel"},
    {"data.images.std", same, OCTET_FIELD(data.images.std_dev), within(1e-6, 1e3), "",
     "what they are divided by then"},
};

constexpr ConfigRow kLoraRows[] = {
    {"lora.rank", same, OCTET_FIELD(lora.rank), within(0, kMaxLoraRank), "",
     "train adapters of this rank beside the linears of model.path, whose weights stay as they "
     "are; "
     "0: train all weights"},
    {"lora.kind", same, OCTET_CHOICE(lora.kind), one_of(names_of<LoraKind>), "",
     "lora; rslora: scaled by alpha / sqrt(rank); dora: magnitudes of the outputs, too"},
    {"lora.alpha", same, OCTET_FIELD(lora.alpha), above(0, 1e6), "",
     "adapters are scaled by alpha / rank"},
    {"lora.ranks", same, OCTET_FIELD(lora.ranks), any(), "",
     "of linears with another rank, `PATTERN=RANK` or `PATTERN=RANK:ALPHA`, as lora.targets names "
     "them; the first that matches counts"},
    {"lora.save", same, OCTET_FIELD(lora.save), any(), "",
     "patterns of modules, by path or its last part, that are trained whole beside the adapters "
     "(PEFT's modules_to_save)"},
    {"lora.adapter", same, OCTET_FIELD(lora.adapter), any(), "",
     "a folder of PEFT's, beside model.path, whose adapters training goes on with (--adapter); it "
     "says what the other keys of lora are, but dropout and base"},
    {"lora.targets", same, OCTET_FIELD(lora.targets), any(), "",
     "patterns of the layers' linears that have adapters, by module or its last part "
     "(`*.self_attn.*`, `q_proj`); `*`: all"},
    {"lora.dropout", same, OCTET_FIELD(lora.dropout), below_one(), "",
     "share of an adapter's inputs that a training step leaves out; the masks are drawn on the "
     "host and take the memory of those inputs"},
    {"lora.base", same, OCTET_CHOICE(lora.base), one_of(names_of<FrozenFormat>), "",
     "what the weights that stay are kept as: the linears in E4M3 or HiFloat8 with a scale a "
     "tensor, or in E4M3 with one for each block of 128 x 128; bf16; auto: as the recipe computes"},
};

constexpr ConfigRow kParallelRows[] = {
    {"parallel.ranks", step_size, OCTET_FIELD(parallel.ranks), within(1, 1 << 12), "ranks",
     "devices that train together, each with train.batch rows of its own (--ranks); with --device "
     "cpu they are threads of one process"},
    {"parallel.shard", named, OCTET_CHOICE(parallel.shard), one_of(names_of<ShardStage>), "",
     "what a rank keeps a part of instead of all: nothing; optimizer states; gradients too; "
     "weights too, which are gathered for each layer's forward and backward"},
    {"parallel.gather", named, OCTET_CHOICE(parallel.gather), one_of(names_of<GatherFormat>), "",
     "what travels where weights are gathered: bf16, or quantized data where nothing but "
     "quantizers reads the weight"},
    {"parallel.reduce", named, OCTET_CHOICE(parallel.reduce), auto_or(names_of<ReduceFormat>), "",
     "format of the gradients that travel (recipe fp32: bf16 stands for f32); e4m3: of matrices, "
     "with one scale a tensor; sums are f32; auto: bf16, e4m3 in fp8_lm"},
    {"parallel.strict", named, OCTET_FIELD(parallel.strict), any(), "",
     "gradients travel as f32, and sums do not depend on the number of ranks: with recipe fp32, D "
     "ranks have the bits of one rank that accumulates D times as often"},
    {"parallel.transport", open, OCTET_CHOICE(parallel.transport), one_of(names_of<RankTransport>),
     "",
     "what moves data between GPUs: peer, copies from each other's memory, on one host; nccl, also "
     "between hosts; auto: peer where all reach each other so, both on hosts of several such"},
};

constexpr ConfigRow kOutRows[] = {
    {"out", open, OCTET_FIELD(out), any(), "",
     "folder of the run: configuration, metrics, checkpoints"},
};

// A number without two bounds would be cut somewhere below, in silence.
static_assert(are_bounded(kModelRows, kDataRows, kLoraRows, kParallelRows));

ConfigRow row_of(const ModelField& field) {
  ConfigLimits limits{.bounds = field.bounds};
  if (field.origin == FieldOrigin::derived) limits.bounds.low = 0;
  if (const auto* member = std::get_if<const ModelEnum*>(&field.member))
    limits.names = (*member)->names;
  return {field.path, same, &field, limits, field.unit, field.help};
}

std::vector<ConfigRow> make_rows() {
  std::vector<ConfigRow> rows(std::begin(kModelRows), std::end(kModelRows));
  for (const ModelField& field : model_fields()) {
    if (field.origin != FieldOrigin::run) rows.push_back(row_of(field));
  }
  for (const std::span<const ConfigRow> part :
       {std::span<const ConfigRow>(kRecipeRows), optim_rows(),
        std::span<const ConfigRow>(kDataRows), std::span<const ConfigRow>(kLoraRows), train_rows(),
        std::span<const ConfigRow>(kParallelRows), std::span<const ConfigRow>(kOutRows)}) {
    rows.insert(rows.end(), part.begin(), part.end());
  }
  return rows;
}

}  // namespace

std::span<const ConfigRow> config_rows() {
  static const std::vector<ConfigRow> rows = make_rows();
  return rows;
}

}  // namespace octet
