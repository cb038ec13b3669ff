#include "train/finetune.h"

#include <fmt/ranges.h>

#include <algorithm>

#include "base/error.h"
#include "base/integer.h"
#include "base/json.h"
#include "data/chat_dataset.h"
#include "data/text_files.h"
#include "data/text_samples.h"
#include "nn/hf_config.h"
#include "nn/model.h"
#include "nn/shape.h"
#include "text/tokenizer.h"
#include "train/go_on.h"
#include "train/row_data.h"
#include "train/run_length.h"
#include "train/run_setup.h"

namespace octet {
namespace {

constexpr int64_t kLongestSeq = 2048, kSeqStep = 16;
constexpr int64_t kMaxRows = 8;      // of a micro-batch
constexpr int64_t kMinSteps = 16;    // of an epoch, where its rows allow it
constexpr int64_t kEvaluations = 4;  // an epoch
constexpr double kAdapterLr = 2e-4;  // of adapters; all weights move in smaller steps
constexpr std::string_view kDefaults = R"(
model: {{path: {model}, seq: {seq}}}
recipe: {recipe}
optim: {{lr: 1.0e-5, schedule: cosine, warmup_share: 0.03, final_lr: 0, weight_decay: 0, clip: 1.0}}
data: {{train: {data}{rows}}}
train: {{epochs: 3, batch: {batch}{evaluated}, keep: 1, keep_best: true, patience: 8,
  log_every: 10, export: as-stored}}
out: {out}
)";

std::string quoted(const std::string& text) {
  return Json(text).dump();  // YAML's double quotes read what JSON writes
}

// True if the paths hold conversations: JSON files, or folders that have some.
bool are_conversations(const Files& files, const std::vector<std::string>& paths) {
  return std::ranges::any_of(paths, [&](const std::string& path) {
    if (!files.exists(path)) {
      throw Error(ErrorCode::bad_data, "[data] '{}': expected a file or a folder, got neither",
                  path);
    }
    if (!files.is_directory(path)) return is_json_name(path);
    return std::ranges::any_of(files_under(files, path).paths, is_json_name);
  });
}

// Content of a row: whole conversations, or a window of text; of encoders what their loss asks for.
std::string_view rows_of(const Files& files, const ModelSpec& spec,
                         const std::vector<std::string>& data) {
  if (model_def(spec.kind).sees_pictures && are_conversations(files, data))
    return ", chat: {template: auto}, too_long: drop";
  if (!model_def(spec.kind).writes_text) return "";
  return are_conversations(files, data) ? ", chat: {template: auto}, pack: true"
                                        : ", document_boundaries: isolate";
}

// Text of a model whose tokenizer is unknown would be bytes, which mean nothing to it.
void expect_tokenizer(const Files& files, const LoadedConfig& loaded, int64_t vocab) {
  const RunConfig& config = loaded.config;
  if (loaded.source.at("data.tokenizer") != "default" || vocab == 256) return;
  if (find_tokenizer(files, config.model.path) || are_token_shards(files, config.data.train))
    return;
  throw Error(ErrorCode::bad_data,
              "[model] '{}': expected the files of a tokenizer beside config.json, got none (--set "
              "data.tokenizer=FILE)",
              config.model.path);
}

// The tokens that a row has to hold; 0: it has as many as it may have.
int64_t longest_row_of(const Dataset& data, const RunConfig& config) {
  if (data.train_rows != nullptr) {
    const int64_t of_val = data.val_rows == nullptr ? 0 : data.val_rows->longest();
    return std::max(data.train_rows->longest(), of_val);
  }
  // A document's last token is a label alone.
  if (!has_whole_documents(config)) return data.train.n_tokens() - 1;
  const RowOptions options = row_options(config);
  return std::max(find_pieces(data.train, options).longest,
                  find_pieces(data.val, options).longest) -
         1;
}

}  // namespace

bool compares_answers(const RunConfig& config) {
  return std::ranges::any_of(config.train.loss, [](const WeightedLoss& one) {
    const LossDef* loss = find_loss(one.name);
    return loss != nullptr && loss->compares_answers;
  });
}

LoadedConfig finetune_config(const Files& files, const FinetuneOptions& options,
                             const std::vector<std::string>& sets) {
  const ModelSpec spec = read_hf_config(files, options.model);
  std::vector<std::string> data;
  for (const std::string& path : options.data) data.push_back(quoted(path));
  const auto parse = [&](std::string_view rows) {
    const std::string text = fmt::format(
        kDefaults, fmt::arg("model", quoted(options.model)),
        fmt::arg("seq", std::min(longest_row(spec), kLongestSeq)),
        fmt::arg("recipe", quoted(options.recipe.empty() ? RecipeConfig{}.base : options.recipe)),
        fmt::arg("data", fmt::format("[{}]", fmt::join(data, ", "))), fmt::arg("rows", rows),
        fmt::arg("batch", kMaxRows),
        fmt::arg("evaluated", model_def(spec.kind).writes_text ? ", eval_bytes: 4 MiB" : ""),
        fmt::arg("out", quoted(options.out.empty() ? "runs/finetune" : options.out)));
    return parse_config(text, std::string(kFinetuneSource), sets);
  };
  constexpr std::string_view kAnswers = ", chat: {template: auto}";  // rows of their own
  LoadedConfig loaded = parse(kAnswers);
  if (!compares_answers(loaded.config)) loaded = parse(rows_of(files, spec, options.data));
  settle_adapters(files, loaded);
  if (loaded.config.lora.rank > 0 && !is_set(loaded.source, "optim.lr")) {
    loaded.config.optim.lr = kAdapterLr;
    loaded.source["optim.lr"] = "derived";
  }
  if (!options.data.empty()) expect_tokenizer(files, loaded, spec.vocab);
  return loaded;
}

void fit_to_data(LoadedConfig& loaded, const Dataset& data) {
  RunConfig& config = loaded.config;
  const auto derive = [&](const std::string& key, int64_t& field, int64_t value) {
    if (is_set(loaded.source, key)) return;
    field = value;
    loaded.source[key] = "derived";
  };
  const int64_t longest = longest_row_of(data, config);
  if (longest > 0 || data.train_rows == nullptr) {
    const int64_t fitting = std::max(ceil_div(longest, kSeqStep) * kSeqStep, kSeqStep);
    derive("model.seq", config.model.seq, std::min(fitting, config.model.seq));
  }
  const int64_t rows = make_loader(data, config).rows_of_epoch(0);
  // A batch of samples of several rows has at least two, which are compared with each other.
  const int64_t together = data.train_rows == nullptr ? 1 : data.train_rows->rows_per_sample();
  const int64_t least = together == 1 ? 1 : 2 * together;
  const int64_t batch = std::clamp(rows / kMinSteps, least, std::max(least, kMaxRows));
  derive("train.batch", config.train.batch, batch - batch % together);
  settle_length(loaded, data, Log());
  const int64_t epoch_steps = steps_of_epochs(make_loader(data, config), 1, config.step_rows());
  derive("train.eval_every", config.train.eval_every, ceil_div(epoch_steps, kEvaluations));
  derive("train.save_every", config.train.save_every, epoch_steps);
}

}  // namespace octet
