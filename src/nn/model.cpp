#include "nn/model.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "nn/blocks.h"
#include "nn/list.h"
#include "nn/shape.h"

namespace octet {
namespace {

constexpr const ModelDef* kModels[] = {
#define MODEL(kind, constant) &constant,
#include "nn/models.def"
};

// The head that gives an output; "" without one.
std::string head_advice(const ModelDef& def, std::string_view output) {
  const auto at = std::ranges::find(def.heads, output, &HeadDef::output);
  if (at == def.heads.end()) return "";
  return fmt::format(" with this head (model.head: {})", enum_name(at->head));
}

}  // namespace

std::span<const ModelDef* const> all_models() {
  return kModels;
}

std::span<const ModelDef* const> models() {
  const auto end = std::ranges::find(kModels, false, &ModelDef::writes_text);
  return {std::begin(kModels), end};
}

const ModelDef& model_def(ModelKind kind) {
  const ModelDef& def = *kModels[static_cast<size_t>(kind)];
  CHECK(def.kind == kind);
  return def;
}

const ModelDef* find_model(std::string_view name) {
  const auto at = std::ranges::find(kModels, name, &ModelDef::name);
  return at == std::end(kModels) ? nullptr : *at;
}

std::string_view nearest_kind(std::string_view name) {
  const auto alike = [&](std::string_view known) {
    const std::ptrdiff_t n = std::ranges::mismatch(known, name).in1 - known.begin();
    return n > 0 && known[static_cast<size_t>(n) - 1] == '_' ? n - 1 : n;
  };
  constexpr std::ptrdiff_t kLeast = 3;
  std::string_view best;
  for (const ModelDef* def : kModels) {
    const auto n = alike(def->name), most = best.empty() ? kLeast - 1 : alike(best);
    if (n > most || (n == most && !best.empty() && def->name.size() < best.size()))
      best = def->name;
  }
  return best;
}

const HfKey* find_hf_key(const ModelDef& def, std::string_view field) {
  for (const auto keys : {def.own_hf_keys, def.hf_keys}) {
    const auto at = std::ranges::find(keys, field, &HfKey::field);
    if (at != keys.end()) return &*at;
  }
  return nullptr;
}

std::vector<HfKey> hf_keys_of(const ModelDef& def) {
  std::vector<HfKey> keys;
  for (const HfKey& key : def.hf_keys) keys.push_back(*find_hf_key(def, key.field));
  for (const HfKey& key : def.own_hf_keys) {
    if (std::ranges::find(def.hf_keys, key.field, &HfKey::field) == def.hf_keys.end())
      keys.push_back(key);
  }
  return keys;
}

ModelSpec resolved(const ModelSpec& spec) {
  if (const auto fault = fault_of(spec)) {
    throw Error(ErrorCode::invalid_argument, "[model] {}: expected {}, got {}", fault->field,
                fault->expected_of(fault->other), fault->got);
  }
  return filled(spec);
}

std::optional<ModelHead> head_of_class(const ModelDef& def, std::string_view architecture) {
  const auto own = std::ranges::find(def.heads, architecture, &HeadDef::architecture);
  if (own != def.heads.end()) return own->head;
  const auto other = std::ranges::find(def.head_aliases, architecture, &HeadAlias::architecture);
  if (other != def.head_aliases.end()) return other->head;
  return std::nullopt;
}

std::vector<std::string_view> head_classes(const ModelDef& def) {
  std::vector<std::string_view> classes;
  for (const HeadDef& head : def.heads) {
    if (std::ranges::count(classes, head.architecture) == 0) classes.push_back(head.architecture);
  }
  for (const HeadAlias& alias : def.head_aliases) classes.push_back(alias.architecture);
  return classes;
}

std::vector<InputSpec> text_inputs(const ModelSpec& spec, const BatchSize& size) {
  std::vector<InputSpec> inputs = {tokens_input(), positions_input()};
  inputs.front().bound = spec.vocab;
  if (size.documents == RowDocuments::isolated) inputs.push_back(doc_starts_input());
  return inputs;
}

std::vector<OutputSpec> token_logits(const ModelSpec&) {
  return {{"logits", Per::token}};
}

std::vector<StackSpec> one_stack(const ModelSpec& spec) {
  return {{.name = "", .layers = spec.layers}};
}

std::vector<InputSpec> source_inputs(const ModelSpec& spec, const BatchSize& size) {
  if (size.documents == RowDocuments::isolated) {
    throw Error(ErrorCode::invalid_argument,
                "[model] expected one target a row for kind {}, got isolated documents",
                model_def(spec.kind).name);
  }
  InputSpec source{.name = "source", .per = Per::row, .inner = {spec.source_seq}};
  InputSpec length{.name = "source_length", .per = Per::row};
  source.bound = spec.vocab;
  length.bound = spec.source_seq + 1;
  std::vector<InputSpec> inputs = text_inputs(spec, size);
  // Distances within a call say all but what a cache holds before it.
  const ModelDef& def = model_def(spec.kind);
  const bool is_relative = def.positions == Positions::relative && size.cache == 0;
  if (is_relative || def.is_recurrent) std::erase(inputs, positions_input());
  inputs.push_back(source);
  inputs.push_back(length);
  return inputs;
}

std::vector<StackSpec> encoder_and_decoder(const ModelSpec& spec) {
  return {{.name = "encoder", .layers = spec.layers},
          {.name = "decoder", .layers = filled(spec).decoder_layers}};
}

std::string_view next_token_loss(const ModelSpec&) {
  return "next_token";
}

const HeadDef& head_of(const ModelSpec& spec) {
  const std::span<const HeadDef> heads = model_def(spec.kind).heads;
  CHECK(!heads.empty());
  const auto at = std::ranges::find(heads, spec.head, &HeadDef::head);
  return at == heads.end() ? heads.front() : *at;
}

std::vector<OutputSpec> head_output(const ModelSpec& spec) {
  return {{head_of(spec).output, head_of(spec).per}};
}

std::string_view head_loss(const ModelSpec& spec) {
  return head_of(spec).loss;
}

std::vector<WeightedLoss> resolved_losses(const ModelSpec& spec,
                                          const std::vector<WeightedLoss>& losses) {
  const ModelDef& def = model_def(spec.kind);
  if (losses.empty()) {
    const std::string_view own = def.loss(spec);
    if (find_loss(own) == nullptr) {
      throw Error(ErrorCode::invalid_argument,
                  "[train] loss: {} with head {} has no loss of its own: name one", def.name,
                  enum_name(spec.head));
    }
    return {{.name = std::string(own)}};
  }
  const std::vector<OutputSpec> outputs = def.outputs(spec);
  for (const WeightedLoss& one : losses) {
    const LossDef* loss = find_loss(one.name);
    if (loss == nullptr) {
      std::vector<std::string_view> names;
      for (const LossDef* known : octet::losses()) names.push_back(known->name);
      throw Error(ErrorCode::invalid_argument, "[train] loss: expected {}, got '{}'",
                  fmt::join(names, ", "), one.name);
    }
    if (std::ranges::find(outputs, loss->output, &OutputSpec::read_as) == outputs.end()) {
      throw Error(ErrorCode::invalid_argument,
                  "[train] loss: {} reads the output '{}', which {} has not{}", one.name,
                  loss->output, def.name, head_advice(def, loss->output));
    }
  }
  return losses;
}

int64_t row_tokens(const ModelSpec& spec, int64_t seq) {
  const ModelDef& def = model_def(spec.kind);
  if (def.reads_text) return seq;
  const int64_t side = spec.image_size / spec.patch_size;
  return side * side + def.class_tokens;
}

int64_t rows_per_sample(const std::vector<WeightedLoss>& losses) {
  int64_t rows = 1;
  for (const WeightedLoss& one : losses) {
    const LossDef& loss = *find_loss(one.name);
    rows =
        std::max(rows, loss.rows_per_sample + (loss.takes_negatives ? one.options.negatives : 0));
  }
  return rows;
}

std::string inv_n_name(const std::vector<WeightedLoss>& losses, size_t i) {
  return i == 0 ? "inv_n" : "inv_n." + losses[i].name;
}

std::string metric_name(const std::vector<WeightedLoss>& losses, size_t i,
                        std::string_view metric) {
  return losses.size() == 1 ? std::string(metric) : fmt::format("{}.{}", losses[i].name, metric);
}

std::vector<InputSpec> batch_inputs(const ModelSpec& spec, const BatchSize& size,
                                    const std::vector<WeightedLoss>& losses) {
  std::vector<InputSpec> inputs = model_def(spec.kind).inputs(spec, size);
  for (const WeightedLoss& one : losses) {
    for (InputSpec& input : find_loss(one.name)->inputs(spec)) {
      const auto known = std::ranges::find(inputs, input.name, &InputSpec::name);
      if (known == inputs.end()) {
        inputs.push_back(std::move(input));
      } else if (!(*known == input)) {
        throw Error(ErrorCode::invalid_argument,
                    "[train] loss: '{}' is an input of another shape beside {}", input.name,
                    one.name);
      }
    }
  }
  return inputs;
}

namespace {

Outputs built(Blocks& blocks) {
  const ModelDef& def = model_def(blocks.spec().kind);
  return def.build != nullptr ? def.build(blocks) : Outputs{def.logits(blocks)};
}

}  // namespace

std::vector<ParameterSpec> model_parameters(const ModelSpec& spec) {
  Blocks blocks(resolved(spec));
  built(blocks);
  return blocks.parameters();
}

ModelGraph build_model(const ModelSpec& spec, const BatchSize& batch, ModelOutputs outputs,
                       const std::vector<WeightedLoss>& losses) {
  if (batch.batch < 1 || batch.seq < 1) {
    throw Error(ErrorCode::invalid_argument,
                "[model] expected a batch of at least 1 sequence of 1 token, got {} of {}",
                batch.batch, batch.seq);
  }
  ModelGraph model{.graph = {}, .parameters = model_parameters(spec)};
  const bool has_loss = outputs == ModelOutputs::loss;
  const std::vector<WeightedLoss> wanted =
      has_loss ? resolved_losses(spec, losses) : std::vector<WeightedLoss>{};
  if (const int64_t rows = rows_per_sample(wanted); batch.batch % rows != 0) {
    throw Error(ErrorCode::invalid_argument,
                "[train] loss: expected a batch of whole samples of {} rows, got {} rows", rows,
                batch.batch);
  }
  Blocks blocks(resolved(spec), batch, wanted, model.parameters);
  const Outputs values = built(blocks);
  if (has_loss) {
    blocks.losses(values);
  } else {
    blocks.outputs(values);
  }
  model.graph = blocks.take_graph();
  return model;
}

bool has_source(const ModelSpec& spec) {
  const Graph graph = build_model(spec, {}, ModelOutputs::outputs).graph;
  return std::ranges::any_of(graph.nodes, [](const Node& node) {
    const auto* attention = std::get_if<AttentionAttrs>(&node.attrs);
    return attention != nullptr && attention->keys == AttentionKeys::fixed;
  });
}

int64_t parameter_count(const ModelSpec& spec) {
  int64_t count = 0;
  for (const ParameterSpec& p : model_parameters(spec))
    count += p.is_statistic ? 0 : n_elems(p.shape);
  return count;
}

}  // namespace octet
