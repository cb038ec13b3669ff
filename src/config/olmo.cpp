#include "config/olmo.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <set>

#include "base/error.h"
#include "base/input_limits.h"
#include "base/parse_text.h"
#include "config/value.h"

namespace octet {
namespace {

// A path that ends with '.' stands for all keys below it.
constexpr std::string_view kNoMeaning[] = {"dry_run",
                                           "wandb.",
                                           "compile",
                                           "compile.",
                                           "fsdp.",
                                           "ddp.",
                                           "single.",
                                           "speed_monitor.",
                                           "evaluators",
                                           "eval_subset_num_batches",
                                           "device_eval_batch_size",
                                           "eval_on_load",
                                           "console_log_interval",
                                           "canceled_check_interval",
                                           "gen1_gc_interval",
                                           "distributed_strategy",
                                           "activation_checkpointing",
                                           "fused_loss",
                                           "save_folder",
                                           "remote_save_folder",
                                           "save_overwrite",
                                           "save_interval_unsharded",
                                           "save_interval_ephemeral",
                                           "save_num_checkpoints_to_keep",
                                           "save_num_unsharded_checkpoints_to_keep",
                                           "sharded_checkpointer",
                                           "time_limit",
                                           "model.init_device",
                                           "model.flash_attention",
                                           "model.eos_token_id",
                                           "model.pad_token_id",
                                           "optimizer.metrics_log_interval",
                                           "tokenizer.truncate_direction",
                                           "data.pad_direction",
                                           "data.drop_last",
                                           "data.num_workers",
                                           "data.pin_memory",
                                           "data.prefetch_factor",
                                           "data.persistent_workers",
                                           "data.timeout"};

// The values with which a run is what the file says, and what OLMo takes where it has no such key.
struct OnlyValue {
  std::string_view path, value, otherwise = value;
};
constexpr OnlyValue kOnly[] = {{"load_path", ""},
                               {"max_grad_norm_ratio", ""},
                               {"softmax_auxiliary_loss", "false"},
                               {"model.alibi", "false"},
                               {"model.rope", "true", "false"},
                               {"model.include_bias", "false", "true"},
                               {"model.bias_for_layer_norm", "false"},
                               {"model.scale_logits", "false"},
                               {"model.block_type", "sequential"},
                               {"model.activation_type", "swiglu"},
                               {"model.attention_dropout", "0", "0.1"},
                               {"model.residual_dropout", "0", "0.1"},
                               {"model.embedding_dropout", "0", "0.1"},
                               {"model.init_fn", "octet", "normal"},
                               {"optimizer.name", "adamw", "lionw"},
                               {"optimizer.decay_norm_and_bias", "false"},
                               {"optimizer.decay_embeddings", "false"},
                               {"scheduler.warmup_min_lr", "0"}};

// Keys whose value a run takes as it is, with OLMo's where the file has none; "": of the run.
struct Renamed {
  std::string_view path, to, otherwise;
};
constexpr Renamed kRenamed[] = {{"model.d_model", "model.hidden", "768"},
                                {"model.n_layers", "model.layers", "12"},
                                {"model.n_heads", "model.heads", "12"},
                                {"model.n_kv_heads", "model.kv_heads", ""},
                                {"model.max_sequence_length", "model.seq", "1024"},
                                {"model.weight_tying", "model.tied", "true"},
                                {"model.rope_theta", "model.rope_theta", "10000"},
                                {"model.layer_norm_eps", "model.norm_eps", "1e-5"},
                                {"model.clip_qkv", "model.clip_qkv", ""},
                                {"optimizer.learning_rate", "optim.lr", "1e-4"},
                                {"optimizer.weight_decay", "optim.weight_decay", "0.01"},
                                {"optimizer.eps", "optim.eps", "1e-5"},
                                {"optimizer.betas", "optim.betas", "[0.9, 0.95]"},
                                {"scheduler.alpha_f", "optim.final_lr", "0.1"},
                                {"max_grad_norm", "optim.clip", "0"},
                                {"tokenizer.identifier", "data.tokenizer", ""},
                                {"data.paths", "data.train", ""},
                                {"seed", "train.seed", "6198"},
                                {"save_interval", "train.save_every", "1000"},
                                {"eval_interval", "train.eval_every", "1000"}};

// A number as OmegaConf reads it: "739_328", "5e12".
std::optional<double> number_of(std::string text) {
  std::erase(text, '_');
  return parse_number<double>(text);
}

// As an integer where it is one.
std::string number_text(double value) {
  const bool is_whole = value == std::floor(value) && std::abs(value) < 0x1p53;
  return is_whole ? fmt::format("{}", static_cast<int64_t>(value)) : fmt::format("{}", value);
}

// In flow style; of maps in it no more than that they are there.
std::string list_text(const YAML::Node& list) {
  std::string text;
  for (const YAML::Node& entry : list) {
    const std::string value = entry.IsScalar() ? entry.Scalar() : "...";
    YAML::Emitter quoted;
    quoted << YAML::DoubleQuoted << value;
    text += (text.empty() ? "" : ", ") + (number_of(value) ? value : std::string(quoted.c_str()));
  }
  return "[" + text + "]";
}

class Importer {
 public:
  Importer(const YAML::Node& root, std::string name) : name_(std::move(name)) {
    add(root, "");
    if (!values_.contains("model.d_model")) {
      throw Error(ErrorCode::invalid_argument,
                  "{}: expected an OLMo training file (model.d_model, optimizer, ...), got none",
                  name_);
    }
  }

  OlmoImport run(const std::vector<std::string>& without) {
    for (const Renamed& row : kRenamed) {
      const std::string value = take(row.path).value_or(std::string(row.otherwise));
      if (!value.empty()) set(row.to, value);
    }
    if (const auto run = take("run_name")) set("out", "runs/" + *run);
    set("recipe", precision());
    set("model.kind", kind());
    set("optim.schedule", schedule());
    sizes();
    steps();
    for (const OnlyValue& row : kOnly) only(row);
    OlmoImport result;
    for (const auto& [path, value] : values_) {
      if (used_.contains(path)) continue;
      const bool is_neutral = std::ranges::any_of(kNoMeaning, [&, &p = path](std::string_view one) {
        return one.ends_with('.') ? p.starts_with(one)
                                  : p == one || p.starts_with(fmt::format("{}.", one));
      });
      if (is_neutral) {
        result.no_meaning.push_back(path);
      } else if (!value.empty()) {
        refused_.emplace(path, value);
      }
    }
    leave_out(without, result);
    result.yaml = yaml();
    return result;
  }

 private:
  // Scalars and lists by their paths, and "" of null.
  void add(const YAML::Node& node, const std::string& path) {
    if (node.IsMap()) {
      for (const auto& entry : node) {
        const auto key = entry.first.as<std::string>();
        add(entry.second, path.empty() ? key : fmt::format("{}.{}", path, key));
      }
      return;
    }
    values_[path] = node.IsSequence() ? list_text(node) : node.IsNull() ? "" : node.Scalar();
  }

  // Through "${other}"; nothing where the key is absent or null.
  std::optional<std::string> find(std::string_view path, int depth = 0) const {
    const auto at = values_.find(path);
    if (at == values_.end() || at->second.empty()) return std::nullopt;
    const std::string& text = at->second;
    const bool is_link = text.starts_with("${") && text.ends_with('}');
    if (!is_link || depth > 4) return text;
    const auto linked = find(text.substr(2, text.size() - 3), depth + 1);
    return linked ? linked : text;
  }

  std::optional<std::string> take(std::string_view path) {
    used_.insert(std::string(path));
    return find(path);
  }

  bool flag(std::string_view path, bool otherwise) {
    return take(path).value_or(otherwise ? "true" : "false") == "true";
  }

  double number(std::string_view path, double otherwise) {
    const auto text = take(path);
    if (!text) return otherwise;
    const auto value = number_of(*text);
    if (!value) fail(path, "a number", *text);
    return *value;
  }

  [[noreturn]] void fail(std::string_view path, std::string_view expected,
                         std::string_view got) const {
    throw Error(ErrorCode::invalid_argument, "{}: {}: expected {}, got '{}'", name_, path, expected,
                got);
  }

  void set(std::string_view key, const std::string& value) {
    const auto number = number_of(value);
    set_[std::string(key)] = number ? number_text(*number) : value;
  }

  void only(const OnlyValue& row) {
    const bool is_there = find(row.path).has_value();
    const std::string value = take(row.path).value_or(std::string(row.otherwise));
    const auto number = number_of(value), wanted = number_of(std::string(row.value));
    const bool is_it = number && wanted ? *number == *wanted : value == row.value;
    if (!is_it) refused_.emplace(row.path, is_there ? value : value + " (OLMo's default)");
  }

  std::string precision() {
    const std::string value = take("precision").value_or("fp32");
    if (value == "amp_bf16") return "bf16";
    if (value == "amp_fp16") return "fp16";
    if (value == "fp32") return "fp32";
    fail("precision", "amp_bf16, amp_fp16 or fp32", value);
  }

  std::string schedule() {
    const std::string name = take("scheduler.name").value_or("cosine_with_warmup");
    if (name == "cosine_with_warmup") return "cosine";
    if (name == "linear_with_warmup") return "linear";
    fail("scheduler.name", "cosine_with_warmup or linear_with_warmup", name);
  }

  // By the norms: OLMo's without weights, OLMo 2's behind attention and MLP with norms of queries
  // and keys, or Llama's.
  std::string kind() {
    const std::string norm = take("model.layer_norm_type").value_or("default");
    const bool has_weights = flag("model.layer_norm_with_affine", true),
               is_after = flag("model.norm_after", false),
               has_head_norms = flag("model.attention_layer_norm", false);
    flag("model.attention_layer_norm_with_affine", true);
    if (norm == "default" && !has_weights && !is_after && !has_head_norms) return "olmo";
    if (norm == "rms" && has_weights && is_after && has_head_norms) return "olmo2";
    if (norm == "rms" && has_weights && !is_after && !has_head_norms) return "llama";
    fail("model.layer_norm_type",
         "default without weights, or rms with norm_after and attention_layer_norm both or neither",
         norm);
  }

  // The MLP's size counts gate and up.
  void sizes() {
    const double hidden = number("model.d_model", 0);
    const double ratio = number("model.mlp_ratio", 4);
    set("model.ffn", number_text(number("model.mlp_hidden_size", ratio * hidden) / 2));
    const double vocab = number("model.vocab_size", 0);
    set("model.vocab", number_text(number("model.embedding_size", vocab)));
    if (flag("model.multi_query_attention", false)) set("model.kv_heads", "1");
    if (take("data.memmap_dtype").value_or("uint16") == "uint32")
      set("data.token_bytes", "4");
    else
      set("data.token_bytes", "2");
  }

  void steps() {
    const double rows = number("global_train_batch_size", 512),
                 batch = number("device_train_microbatch_size", 16),
                 seq = number("model.max_sequence_length", 1024);
    if (batch <= 0 || std::fmod(rows, batch) != 0)
      fail("global_train_batch_size", "a multiple of device_train_microbatch_size",
           number_text(rows));
    set("train.batch", number_text(batch));
    set("train.accumulate", number_text(rows / batch));
    const bool are_tokens = take("scheduler.units").value_or("steps") == "tokens";
    const auto steps_of = [&](double value) {
      return number_text(are_tokens ? std::round(value / (rows * seq)) : value);
    };
    set("optim.warmup", steps_of(number("scheduler.t_warmup", 100)));
    const std::string duration = take("max_duration").value_or("10000");
    if (duration.ends_with("ep")) {
      set("train.epochs", duration.substr(0, duration.size() - 2));
    } else if (duration.ends_with('T')) {
      const auto tokens = number_of(duration.substr(0, duration.size() - 1));
      if (!tokens) fail("max_duration", "steps, epochs (2ep) or tokens (2e12T)", duration);
      set("train.steps", number_text(std::round(*tokens / (rows * seq))));
    } else {
      set("train.steps", duration);
    }
    const auto end = take("scheduler.t_max");
    const bool is_same = end && set_.contains("train.steps") && number_of(*end) &&
                         steps_of(*number_of(*end)) == set_["train.steps"];
    if (end && !is_same) refused_.emplace("scheduler.t_max", *end);
  }

  void leave_out(const std::vector<std::string>& without, OlmoImport& result) {
    for (const std::string& key : without) {
      const auto at = refused_.find(key);
      if (at == refused_.end()) {
        throw Error(ErrorCode::invalid_argument,
                    "--without: expected keys of {} that a run does not have, got '{}'", name_,
                    key);
      }
      result.left_out.push_back(fmt::format("{}: {}", at->first, at->second));
      refused_.erase(at);
    }
    if (refused_.empty()) return;
    std::vector<std::string> keys, values;
    for (const auto& [key, value] : refused_) {
      keys.push_back(key);
      values.push_back(fmt::format("{}: {}", key, value.substr(0, 40)));
    }
    throw Error(ErrorCode::invalid_argument,
                "{}: expected keys that a run has, got {} (left out by --without {})", name_,
                fmt::join(values, ", "), fmt::join(keys, ","));
  }

  std::string yaml() const {
    std::string text, section;
    for (const auto& [key, value] : set_) {
      const size_t dot = key.find('.');
      if (dot == key.npos) {
        text += fmt::format("{}: {}\n", key, value);
        continue;
      }
      if (key.substr(0, dot) != section) text += fmt::format("{}:\n", section = key.substr(0, dot));
      text += fmt::format("  {}: {}\n", key.substr(dot + 1), value);
    }
    return text;
  }

  std::string name_;
  std::map<std::string, std::string, std::less<>> values_;  // of the file, by path
  std::set<std::string, std::less<>> used_;
  std::map<std::string, std::string> set_;      // of the run
  std::map<std::string, std::string> refused_;  // what a run does not have
};

}  // namespace

OlmoImport import_olmo(const std::string& text, const std::string& name,
                       const std::vector<std::string>& without) {
  const YAML::Node root = parse_yaml(text, name, input_limits().yaml);
  if (!root.IsMap()) {
    throw Error(ErrorCode::invalid_argument, "{}: expected a map of keys, got {}", name,
                describe(root));
  }
  return Importer(root, name).run(without);
}

}  // namespace octet
