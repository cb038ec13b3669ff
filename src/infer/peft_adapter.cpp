#include "infer/peft_adapter.h"

#include <fmt/ranges.h>

#include <algorithm>

#include "base/error.h"
#include "infer/adapter_note.h"
#include "infer/weights.h"
#include "io/model_files.h"
#include "nn/hf_names.h"

namespace octet {
namespace {

constexpr std::string_view kWeightEnd = ".weight", kBiasEnd = ".bias";

std::string without_end(const std::string& text, std::string_view suffix) {
  return text.substr(0, text.size() - suffix.size());
}

// Tensors that a module may have in the file.
struct FoundFactors {
  std::string a, b, magnitude;
};

// Endings of tensors' names, and what they are; the longest come first.
enum class PeftPart : uint8_t { a, b, embedding_a, embedding_b, magnitude, beneath, own };
struct PeftEnding {
  std::string_view text;
  PeftPart part;
};
constexpr PeftEnding kPeftEndings[] = {{".lora_A.weight", PeftPart::a},
                                       {".lora_B.weight", PeftPart::b},
                                       {".lora_embedding_A", PeftPart::embedding_a},
                                       {".lora_embedding_B", PeftPart::embedding_b},
                                       {".lora_magnitude_vector", PeftPart::magnitude},
                                       {".lora_magnitude_vector.weight", PeftPart::magnitude},
                                       {".base_layer.weight", PeftPart::beneath},
                                       {".base_layer.bias", PeftPart::own},
                                       {".weight", PeftPart::own},
                                       {".bias", PeftPart::own}};

// The model's parameters as PEFT names them, with the head apart where it is tied: by the class of
// transformers 5, or of 4, where modules have the names of a model's files, as the adapter's
// tensors have them.
class PeftNames {
 public:
  PeftNames(const ModelSpec& base, const std::vector<std::string>& tensors) : spec_(base) {
    const ModelDef& def = model_def(base.kind);
    ModelSpec untied = base;
    if (base.tied && def.writes_text) {
      untied.tied = false;
      embedding_ = model_parameters(base).front().name;
      head_ = def.head;
    }
    parameters_ = model_parameters(untied);
    is_of_files_ = have_names_of_files(tensors);
    for (LoraAdapter& linear : adaptable_linears(untied)) {
      std::string weight = linear.weight();
      linears_.emplace(std::move(weight), std::move(linear));
    }
    for (const ParameterSpec& parameter : parameters_)
      by_name_.emplace(name_of(parameter.name), &parameter);
  }

  // "model.layers.0.self_attn.q_proj.weight" in the class, of a parameter.
  std::string name_of(const std::string& parameter) const {
    for (const std::string_view end : {kWeightEnd, kBiasEnd}) {
      if (is_of_files_ || !parameter.ends_with(end)) continue;
      return module_of_class(spec_, without_end(parameter, end)) + std::string(end);
    }
    return parameter;
  }

  // The parameter of such a name; nullptr where the model has none.
  const ParameterSpec* find(const std::string& name) const {
    if (const auto found = by_name_.find(name); found != by_name_.end()) return found->second;
    const auto known = parameter_name(spec_, name);
    if (!known) return nullptr;
    const auto at = std::ranges::find(parameters_, *known, &ParameterSpec::name);
    return at == parameters_.end() ? nullptr : &*at;
  }

  // True of weights that may have an adapter: linears and embeddings.
  static bool is_matrix(const ParameterSpec& p) {
    return p.name.ends_with(kWeightEnd) && p.shape.size() == 2 && p.file_shape.empty();
  }

  PeftModule module(const ParameterSpec& p) const {
    return {.path = without_end(name_of(p.name), kWeightEnd),
            .is_linear = is_linear(p) || linears_.contains(p.name),
            .is_head = p.name == model_def(spec_.kind).head};
  }

  PeftLinear linear(const ParameterSpec& p) const {
    PeftLinear result;
    if (const auto found = linears_.find(p.name); found != linears_.end()) {
      result.adapter = found->second;
      return result;
    }
    const bool out_in = is_linear(p);
    result.is_of_layers = false;
    result.adapter.module = without_end(p.name, kWeightEnd);
    result.adapter.out_in = out_in;
    result.adapter.n_in = p.shape[out_in ? 1 : 0];
    result.adapter.n_out = p.shape[out_in ? 0 : 1];
    return result;
  }

  const std::vector<ParameterSpec>& parameters() const { return parameters_; }
  // True of the head and the embedding of a tied model.
  bool is_tied(const std::string& parameter) const {
    return !head_.empty() && (parameter == head_ || parameter == embedding_);
  }
  // PEFT's save_embedding_layers writes these beside the factors, in the place of the base's.
  bool is_embedding_or_head(const std::string& parameter) const {
    const ModelDef& def = model_def(spec_.kind);
    return def.writes_text &&
           (parameter == def.head || parameter == model_parameters(spec_).front().name);
  }
  const std::string& head() const { return head_; }
  const std::string& embedding() const { return embedding_; }

 private:
  bool have_names_of_files(const std::vector<std::string>& tensors) const {
    return std::ranges::any_of(parameters_, [&](const ParameterSpec& parameter) {
      const std::string module = parameter.name.substr(0, parameter.name.rfind('.'));
      const auto is_its = [beginning = fmt::format("{}{}.", kPeftPrefix, module)](
                              const std::string& tensor) { return tensor.starts_with(beginning); };
      return module_of_class(spec_, module) != module && std::ranges::any_of(tensors, is_its);
    });
  }

  const ModelSpec& spec_;
  bool is_of_files_ = false;
  std::vector<ParameterSpec> parameters_;
  std::map<std::string, LoraAdapter> linears_;           // by weight
  std::map<std::string, const ParameterSpec*> by_name_;  // in the class
  std::string head_, embedding_;                         // of a tied model
};

class PeftFolder {
 public:
  PeftFolder(const Files& files, const std::string& folder, const ModelSpec& base)
      : files_(open(files, folder)), modules_(base, files_.names()) {
    adapter_.folder = folder;
    adapter_.config = read_peft_config(files, folder);
    const auto metadata =
        SafetensorsReader::open(files, join_path(folder, kPeftWeights)).metadata();
    if (const auto hash = metadata.find(kPeftBaseHash); hash != metadata.end())
      adapter_.base_hash = hash->second;
  }

  PeftAdapter read() {
    for (const std::string& name : files_.names()) add_tensor(name);
    for (const ParameterSpec& p : modules_.parameters()) {
      if (PeftNames::is_matrix(p)) add_linear(p);
    }
    check_saved();
    untie();
    if (adapter_.linears.empty() && adapter_.saved.empty())
      fail("target_modules", "modules of the base", "none of them");
    return std::move(adapter_);
  }

 private:
  static ModelFiles open(const Files& files, const std::string& folder) {
    const std::string path = join_path(folder, kPeftWeights);
    if (files.exists(path)) return ModelFiles::open(files, path);
    throw Error(ErrorCode::bad_data, "[adapter] '{}': expected {}, got none{}", folder,
                kPeftWeights,
                files.exists(join_path(folder, "adapter_model.bin"))
                    ? ", but adapter_model.bin: PEFT's save_pretrained writes the other"
                    : "");
  }

  template <typename Expected, typename Got>
  [[noreturn]] void fail(const std::string& what, const Expected& expected, const Got& got) const {
    throw Error(ErrorCode::bad_data, "[adapter] {}: '{}': expected {}, got {}", adapter_.folder,
                what, expected, got);
  }

  void add_tensor(const std::string& name) {
    const auto dtype = native_dtype(files_.at(name).stored);
    if (!dtype || !is_high_precision(*dtype))
      fail(name, "F32, BF16 or F16", safe_dtype_name(files_.at(name).stored));
    const auto end = std::ranges::find_if(
        kPeftEndings, [&](const PeftEnding& one) { return name.ends_with(one.text); });
    if (!name.starts_with(kPeftPrefix) || end == std::end(kPeftEndings) ||
        name.find(".lora_A.bias") != name.npos || name.find(".lora_B.bias") != name.npos)
      fail(name, "a tensor of LoRA, base_model.model.MODULE.lora_A.weight", "another");
    const std::string module = without_end(name, end->text).substr(kPeftPrefix.size());
    if (end->part == PeftPart::own) return add_own(name, module, end->text);
    const ParameterSpec* p = modules_.find(module + std::string(kWeightEnd));
    if (p == nullptr || !PeftNames::is_matrix(*p))
      fail(name, "a module of the base", "one that it has not");
    FoundFactors& found = found_[p->name];
    switch (end->part) {
      case PeftPart::a:
      case PeftPart::embedding_a:
        found.a = name;
        break;
      case PeftPart::b:
      case PeftPart::embedding_b:
        found.b = name;
        break;
      case PeftPart::magnitude:
        found.magnitude = name;
        break;
      default:
        add_beneath(*p, name);
    }
  }

  bool is_written_again(const std::string& name) const {
    const bool is_base_s = name.find(kOriginalModule) != name.npos;
    return std::ranges::any_of(first_names(name), [&](const std::string& first) {
      return files_.find(first) != nullptr && (is_base_s || files_.are_equal(first, name));
    });
  }

  void add_own(const std::string& name, const std::string& module, std::string_view ending) {
    if (is_written_again(name)) return;
    const std::string_view end = ending.ends_with(kBiasEnd) ? kBiasEnd : kWeightEnd;
    const ParameterSpec* p = modules_.find(module + std::string(end));
    if (p == nullptr) fail(name, "a parameter of the base", "one that it has not");
    const bool is_bias = end == kBiasEnd && adapter_.config.bias != PeftBias::none;
    if (!is_bias && !is_saved(*p) && !is_tied_partner(*p)) {
      if (modules_.is_embedding_or_head(p->name)) return add_beneath(*p, name);
      fail(name, "modules_to_save or bias that names it", "neither");
    }
    expect_shape(name, p->shape);
    adapter_.saved.emplace(p->name, name);
  }

  // PEFT writes both of a pair that is tied, of which one is named.
  bool is_tied_partner(const ParameterSpec& p) const {
    const auto is_named = [&](const ParameterSpec& other) {
      return modules_.is_tied(other.name) && is_saved(other);
    };
    return adapter_.config.ties_weights && modules_.is_tied(p.name) &&
           std::ranges::any_of(modules_.parameters(), is_named);
  }

  void add_beneath(const ParameterSpec& p, const std::string& name) {
    expect_shape(name, p.shape);
    if (!modules_.is_tied(p.name)) {
      adapter_.beneath.emplace(p.name, name);
      return;
    }
    adapter_.beneath.emplace(modules_.head(), name);
    adapter_.beneath.emplace(modules_.embedding(), name);
  }

  bool is_saved(const ParameterSpec& p) const {
    const std::string path = modules_.name_of(p.name);
    return is_saved_module(adapter_.config.saved, path.substr(0, path.rfind('.')));
  }

  void expect_shape(const std::string& name, const Shape& shape) const {
    if (files_.at(name).shape != shape)
      fail(name, fmt::format("{} as the base has it", to_string(shape)),
           to_string(files_.at(name).shape));
  }

  void add_linear(const ParameterSpec& p) {
    const PeftModule module = modules_.module(p);
    const auto found = found_.find(p.name);
    const bool has_factors = found != found_.end() && !found->second.a.empty();
    if (!is_targeted(adapter_.config, module)) {
      if (has_factors) fail(found->second.a, "target_modules that name its module", "others");
      return;
    }
    if (!has_factors || found->second.b.empty())
      fail(module.path, fmt::format("its factors in {}, as target_modules names it", kPeftWeights),
           "none");
    PeftLinear linear = modules_.linear(p);
    LoraAdapter& lora = linear.adapter;
    const PeftConfig& config = adapter_.config;
    lora.rank = rank_of(config, module.path);
    lora.alpha = alpha_of(config, module.path);
    lora.scale =
        lora_scale(config.rslora ? LoraKind::rslora : LoraKind::lora, lora.rank, lora.alpha);
    linear.a = found->second.a;
    linear.b = found->second.b;
    expect_shape(linear.a, {lora.rank, lora.n_in});
    expect_shape(linear.b, {lora.n_out, lora.rank});
    if (config.dora != !found->second.magnitude.empty())
      fail(module.path, config.dora ? "a magnitude, as use_dora says" : "none without use_dora",
           config.dora ? "none" : "a magnitude");
    if (config.dora) {
      if (!module.is_linear) fail("use_dora", "no embedding in target_modules", module.path);
      linear.magnitude = found->second.magnitude;
      expect_shape(linear.magnitude, {lora.n_out});
    }
    adapter_.linears.push_back(std::move(linear));
  }

  // Each module that is to be saved has all that it has. Names of other models' heads stand beside
  // one that the base has: PEFT itself writes "classifier" and "score".
  void check_saved() const {
    bool has_one = adapter_.config.saved.empty();
    for (const ParameterSpec& p : modules_.parameters()) {
      if (!is_saved(p)) continue;
      if (!adapter_.saved.contains(p.name))
        fail(modules_.name_of(p.name),
             fmt::format("it in {}, as modules_to_save names it", kPeftWeights), "none");
      has_one = true;
    }
    if (!has_one)
      fail("modules_to_save", "a module of the base",
           fmt::format("{}", fmt::join(adapter_.config.saved, ", ")));
  }

  void untie() {
    const auto is_changed = [&](const std::string& parameter) {
      return adapter_.saved.contains(parameter) ||
             std::ranges::any_of(adapter_.linears, [&](const PeftLinear& one) {
               return one.adapter.weight() == parameter;
             });
    };
    if (modules_.head().empty()) return;
    adapter_.unties = is_changed(modules_.head()) || is_changed(modules_.embedding());
    const bool are_both_saved =
        adapter_.saved.contains(modules_.head()) && adapter_.saved.contains(modules_.embedding());
    if (adapter_.config.ties_weights && are_both_saved &&
        files_.are_equal(adapter_.saved.at(modules_.head()),
                         adapter_.saved.at(modules_.embedding()))) {
      adapter_.saved.erase(modules_.head());  // they stay tied
      adapter_.unties = false;
    }
    if (adapter_.config.ties_weights && adapter_.unties && !are_both_saved)
      fail("ensure_weight_tying", "false, or both the head and the embedding in modules_to_save",
           "true");
  }

  ModelFiles files_;
  PeftNames modules_;
  PeftAdapter adapter_;
  std::map<std::string, FoundFactors> found_;  // by parameter
};

}  // namespace

bool is_adapter_folder(const Files& files, const std::string& folder) {
  return files.exists(join_path(folder, kPeftConfig)) &&
         !files.exists(join_path(folder, "config.json"));
}

PeftAdapter read_peft_adapter(const Files& files, const std::string& folder,
                              const ModelSpec& base) {
  return PeftFolder(files, folder, base).read();
}

ModelSpec adapted_spec(const ModelSpec& base, const PeftAdapter& adapter) {
  ModelSpec spec = base;
  if (adapter.unties) spec.tied = false;
  return spec;
}

}  // namespace octet
