#include "infer/model_spec.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "base/error.h"
#include "infer/sentence_folder.h"
#include "infer/stored_tables.h"
#include "io/model_files.h"
#include "nn/hf_config.h"
#include "nn/hf_names.h"
#include "nn/shape.h"
#include "text/padding.h"
#include "text/tokenizer.h"

namespace octet {
namespace {

// The bits of two parameters of one shape.
bool are_equal(const WeightReader& weights, const std::string& a, const std::string& b) {
  constexpr int64_t kPiece = 1 << 18;
  const int64_t n = n_elems(weights.stored(a).shape);
  std::vector<float> of_a, of_b;
  for (int64_t first = 0; first < n; first += kPiece) {
    of_a.resize(static_cast<size_t>(std::min(kPiece, n - first)));
    of_b.resize(of_a.size());
    weights.read(a, first, of_a);
    weights.read(b, first, of_b);
    if (std::memcmp(of_a.data(), of_b.data(), of_a.size() * sizeof(float)) != 0) return false;
  }
  return true;
}

bool differs_from_embedding(const Files& files, const std::string& folder, const ModelSpec& tied) {
  const std::string head(model_def(tied.kind).head);
  if (!has_model_files(files, folder)) return false;
  const ModelFiles weights = ModelFiles::open(files, folder);
  if (weights.find(head) == nullptr) return false;
  const std::string embedding = model_parameters(tied).front().name;
  const auto is_embedding = [&](const std::string& stored) {
    return parameter_name(tied, stored) == embedding;
  };
  if (std::ranges::none_of(weights.names(), is_embedding)) return false;  // told where it is read
  ModelSpec untied = tied;
  untied.tied = false;
  return !are_equal(WeightReader(files, folder, untied, NonfiniteWeights::allowed), embedding,
                    head);
}

// The tokenizer's padding, which no text holds; -1 where a text can hold any id: positions then
// count on from the first row of their table.
int64_t padding_of(const Files& files, const RunConfig& config) {
  const std::string& path = config.data.tokenizer;
  if (path == "bytes" || !files.exists(path)) return -1;
  const auto tokenizer = make_tokenizer(files, path);
  const int64_t id = padding_id(files, path, *tokenizer).value_or(-1);
  std::vector<int32_t> ends = tokenizer->prefix();
  for (const int32_t other : tokenizer->suffix()) ends.push_back(other);
  for (const auto& other : {tokenizer->bos(), tokenizer->eos()}) ends.push_back(other.value_or(-1));
  return std::ranges::count(ends, id) > 0 ? -1 : id;
}

// First token of targets: padding, as T5 and Marian have it, or what ends texts.
int64_t start_of(const Files& files, const RunConfig& config) {
  const std::string& path = config.data.tokenizer;
  if (path == "bytes" || !files.exists(path)) return 0;
  const auto tokenizer = make_tokenizer(files, path);
  if (const auto id = padding_id(files, path, *tokenizer)) return *id;
  return tokenizer->eos().value_or(0);
}

// transformers would add them to the weights, or to those of another folder.
void expect_no_adapters(const Files& files, const std::string& folder) {
  const std::string path = join_path(folder, "adapter_config.json");
  if (!files.exists(path)) return;
  throw Error(ErrorCode::bad_data,
              "[model] {}: expected a model without adapters beside it, got some: --adapter reads "
              "them from a folder of their own",
              path);
}

}  // namespace

bool has_untied_head(const Files& files, const std::string& folder) {
  const ModelSpec spec = read_hf_config(files, folder);
  return spec.tied && differs_from_embedding(files, folder, spec);
}

ModelSpec read_folder_spec(const Files& files, const std::string& folder) {
  expect_no_adapters(files, folder);
  ModelSpec spec = read_hf_config(files, folder);
  check_sine_tables(files, folder, spec);
  check_copies(files, folder, spec);
  spec.tied = spec.tied && !differs_from_embedding(files, folder, spec);
  return spec;
}

ModelSpec with_new_head(const Files& files, const std::string& folder, ModelSpec spec,
                        const RunConfig& config) {
  const ModelHead head = config.model.head;
  if (head == ModelHead::text) return spec;
  const ModelDef& def = model_def(spec.kind);
  if (def.heads.empty()) {
    throw Error(ErrorCode::invalid_argument, "model.head: expected text for kind {}, got {}",
                def.name, enum_name(head));
  }
  const bool has_own = has_classes(head_of(spec).head);
  if (!has_classes(head) || !has_own || config.model.classes > 0)
    spec.classes = has_classes(head) ? config.model.classes : 0;
  spec.head = head;
  spec = filled(spec);
  if (head == ModelHead::embeddings) spec.pooling = read_sentence_folder(files, folder).pooling;
  if (const auto fault = fault_of(spec)) {
    throw Error(ErrorCode::invalid_argument, "model.{}: expected {}, got {}", fault->field,
                fault->expected, fault->got);
  }
  return spec;
}

ModelSpec model_from_config(const Files& files, const RunConfig& config) {
  if (!config.model.path.empty()) {
    const std::string& folder = config.model.path;
    if (!files.exists(join_path(folder, "config.json"))) {
      throw Error(ErrorCode::bad_data,
                  "model.path: expected a model folder with config.json, got '{}', {}", folder,
                  files.exists(folder) ? "which has none" : "which is not there");
    }
    ModelSpec spec = with_new_head(files, folder, read_folder_spec(files, folder), config);
    spec.rope_seq = config.model.seq;
    spec.source_seq = config.model.source_seq;
    spec.images = config.model.images;
    return spec;
  }
  ModelSpec spec = config.model;
  spec.rope_seq = config.model.seq;
  const ModelDef& def = model_def(spec.kind);
  if (def.positions_follow_pad) spec.pad_token = padding_of(files, config);
  if (def.translates) spec.start_token = start_of(files, config);
  spec.max_positions = config.model.seq + first_position(spec);
  if (def.translates) spec.max_positions = std::max(spec.max_positions, spec.source_seq);
  // Distances have no end, and no key of a file.
  if (def.positions == Positions::relative) spec.max_positions = ModelSpec().max_positions;
  return resolved(spec);
}

std::vector<LossTerm> loss_terms(const ModelSpec& spec, const std::vector<WeightedLoss>& losses) {
  const std::vector<WeightedLoss> resolved = resolved_losses(spec, losses);
  std::vector<LossTerm> terms;
  for (size_t i = 0; i < resolved.size(); ++i) {
    const LossDef& def = *find_loss(resolved[i].name);
    LossTerm& term = terms.emplace_back(LossTerm{.inv_n = inv_n_name(resolved, i),
                                                 .counted = std::string(def.counted),
                                                 .rows_per_sample = rows_per_sample(resolved),
                                                 .weight = resolved[i].weight,
                                                 .metrics = {}});
    for (const std::string_view metric : def.metrics)
      term.metrics.push_back(metric_name(resolved, i, metric));
    if (!def.compared.empty()) term.compared = metric_name(resolved, i, def.compared);
    if (def.comparison != Comparison::label_sets) continue;
    const std::vector<InputSpec> inputs = def.inputs(spec);
    term.n_labels = std::ranges::find(inputs, def.counted, &InputSpec::name)->n_inner();
  }
  return terms;
}

ForwardBuilder forward_builder(const ModelSpec& spec, const std::vector<WeightedLoss>& losses) {
  return [spec, losses](const BatchSize& size, ForwardKind kind) {
    const ModelOutputs outputs =
        kind == ForwardKind::loss ? ModelOutputs::loss : ModelOutputs::outputs;
    ModelSpec sized = spec;
    if (size.source > 0) sized.source_seq = size.source;
    return build_model(sized, size, outputs, losses).graph;
  };
}

}  // namespace octet
