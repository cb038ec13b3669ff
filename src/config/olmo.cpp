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

// Each with all keys below it.
// clang-format off
constexpr std::string_view kNoMeaning[] = {
    "dry_run", "wandb", "compile", "fsdp", "ddp", "single", "speed_monitor", "evaluators",
    "eval_subset_num_batches", "device_eval_batch_size", "eval_on_load", "console_log_interval",
    "canceled_check_interval", "gen1_gc_interval", "distributed_strategy",
    "activation_checkpointing", "fused_loss", "save_folder", "remote_save_folder", "save_overwrite",
    "save_interval_unsharded", "save_interval_ephemeral", "save_num_checkpoints_to_keep",
    "save_num_unsharded_checkpoints_to_keep", "sharded_checkpointer", "time_limit",
    "model.init_device", "model.flash_attention", "model.eos_token_id", "model.pad_token_id",
    "optimizer.metrics_log_interval", "tokenizer.truncate_direction", "data.pad_direction",
    "data.drop_last", "data.num_workers", "data.pin_memory", "data.prefetch_factor",
    "data.persistent_workers", "data.timeout"};

// The values with which a run is what the file says, and what OLMo takes where it has no such key.
struct OnlyValue {
  std::string_view path, value, otherwise = value;
};
constexpr OnlyValue kOnly[] = {
    {"load_path", ""}, {"max_grad_norm_ratio", ""}, {"softmax_auxiliary_loss", "false"},
    {"model.alibi", "false"}, {"model.rope", "true", "false"},
    {"model.include_bias", "false", "true"}, {"model.bias_for_layer_norm", "false"},
    {"model.scale_logits", "false"}, {"model.block_type", "sequential"},
    {"model.activation_type", "swiglu"}, {"model.attention_dropout", "0", "0.1"},
    {"model.residual_dropout", "0", "0.1"}, {"model.embedding_dropout", "0", "0.1"},
    {"model.init_fn", "octet", "normal"}, {"optimizer.name", "adamw", "lionw"},
    {"optimizer.decay_norm_and_bias", "false"}, {"optimizer.decay_embeddings", "false"},
    {"scheduler.warmup_min_lr", "0", "learning_rate / 10"}};

// Keys whose value a run takes as it is, with OLMo's where the file has none; "": of the run.
struct Renamed {
  std::string_view path, to, otherwise;
  bool is_text = false;  // also where it reads as a number
};
constexpr Renamed kRenamed[] = {
    {"model.d_model", "model.hidden", "768"}, {"model.n_layers", "model.layers", "12"},
    {"model.n_heads", "model.heads", "12"}, {"model.n_kv_heads", "model.kv_heads", ""},
    {"model.max_sequence_length", "model.seq", "1024"},
    {"model.weight_tying", "model.tied", "true"}, {"model.rope_theta", "model.rope_theta", "10000"},
    {"model.layer_norm_eps", "model.norm_eps", "1e-5"}, {"model.clip_qkv", "model.clip_qkv", ""},
    {"optimizer.learning_rate", "optim.lr", "1e-4"},
    {"optimizer.weight_decay", "optim.weight_decay", "0.01"},
    {"optimizer.eps", "optim.eps", "1e-5"}, {"optimizer.betas", "optim.betas", "[0.9, 0.95]"},
    {"scheduler.alpha_f", "optim.final_lr", "0.1"}, {"max_grad_norm", "optim.clip", "0"},
    {"tokenizer.identifier", "data.tokenizer", "", true}, {"data.paths", "data.train", "", true},
    {"seed", "train.seed", "6198"}, {"save_interval", "train.save_every", "1000"},
    {"eval_interval", "train.eval_every", "1000"}};
// clang-format on

// A number as OmegaConf reads it: "739_328", "5e12".
std::optional<double> number_of(std::string text) {
  std::erase(text, '_');
  const auto value = parse_number<double>(text);
  return value && std::isfinite(*value) ? value : std::nullopt;
}

// A truth as OLMo's loader spells it.
std::optional<bool> truth_of(std::string_view text) {
  if (text == "true" || text == "True" || text == "TRUE") return true;
  if (text == "false" || text == "False" || text == "FALSE") return false;
  return std::nullopt;
}

// The text of a number, as an integer where it is one.
std::string number_text(double value) {
  const bool is_whole = value == std::floor(value) && std::abs(value) < 0x1p53;
  return is_whole ? fmt::format("{}", static_cast<int64_t>(value)) : fmt::format("{}", value);
}

// Quoted where YAML needs it.
std::string yaml_text(const std::string& value) {
  YAML::Emitter text;
  text << YAML::Flow << YAML::BeginSeq << value << YAML::EndSeq;
  const std::string list = text.c_str();
  return list.substr(1, list.size() - 2);
}

// On one line, and not too long for a message.
std::string short_text(const std::string& text) {
  constexpr size_t kLongest = 40;
  if (text.size() <= kLongest) return printable(text);
  size_t end = kLongest;
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xC0u) == 0x80u) --end;
  return printable(text.substr(0, end)) + "...";
}

struct Value {
  std::string text;  // "" of null; of a list in YAML's flow style
  bool is_list = false;
};

// Maps in a list leave no more than that they are there.
Value value_of(const YAML::Node& node) {
  if (!node.IsSequence()) return {.text = node.IsNull() ? "" : node.Scalar()};
  std::string text;
  for (const YAML::Node& entry : node) {
    const std::string value = entry.IsScalar() ? entry.Scalar() : "...";
    const auto number = entry.Tag() == "!" ? std::nullopt : number_of(value);
    text += (text.empty() ? "" : ", ") + (number ? number_text(*number) : yaml_text(value));
  }
  return {.text = "[" + text + "]", .is_list = true};
}

class Importer {
 public:
  Importer(const YAML::Node& root, std::string name) : name_(std::move(name)) {
    add(root, "", 0);
    if (!values_.contains("model.d_model")) {
      throw Error(ErrorCode::invalid_argument,
                  "{}: expected an OLMo training file (model.d_model, optimizer, ...), got none",
                  name_);
    }
  }

  OlmoImport run(const std::vector<std::string>& without) {
    for (const Renamed& row : kRenamed) {
      const auto value = take_value(row.path);
      if (value && !value->is_list && !row.is_text)
        set(row.to, value->text);
      else if (value)
        set_[std::string(row.to)] = value->is_list ? value->text : yaml_text(value->text);
      else if (!row.otherwise.empty())
        set_[std::string(row.to)] = row.otherwise;
    }
    if (const auto run = take("run_name")) set("out", "runs/" + *run);
    set("recipe", precision());
    set("model.kind", kind());
    const std::string schedule =
        one_of("scheduler.name", "cosine_with_warmup", "linear_with_warmup");
    set("optim.schedule", schedule.substr(0, schedule.find('_')));
    sizes();
    steps();
    for (const OnlyValue& row : kOnly) only(row);
    OlmoImport result;
    for (const auto& [path, value] : values_) {
      if (used_.contains(path)) continue;
      const bool is_neutral = std::ranges::any_of(kNoMeaning, [&p = path](std::string_view one) {
        return p == one || p.starts_with(fmt::format("{}.", one));
      });
      if (is_neutral)
        result.no_meaning.push_back(path);
      else if (!value.text.empty())
        refused_.emplace(path, value.text);
    }
    leave_out(without, result);
    result.yaml = yaml();
    return result;
  }

 private:
  // Scalars and lists by their paths; a map may hold itself, by an alias.
  void add(const YAML::Node& node, const std::string& path, int depth) {
    constexpr size_t kMaxKeys = 100'000;
    if (depth > input_limits().yaml.max_depth || first_line_.size() > kMaxKeys) {
      throw Error(ErrorCode::invalid_argument,
                  "{}: expected at most {} levels and {} keys, got more", name_,
                  input_limits().yaml.max_depth, kMaxKeys);
    }
    if (!node.IsMap()) return void(values_[path] = value_of(node));
    for (const auto& entry : node) {
      const int line = entry.first.Mark().line + 1;
      if (!entry.first.IsScalar()) {
        throw Error(ErrorCode::invalid_argument, "{}:{}: expected a name as key, got {}", name_,
                    line, describe(entry.first));
      }
      const std::string to = path + (path.empty() ? "" : ".") + printable(entry.first.Scalar());
      const auto [first, is_new] = first_line_.emplace(to, line);
      if (!is_new) {
        throw Error(ErrorCode::invalid_argument, "{}:{}: {}: duplicate key, first given on line {}",
                    name_, line, to, first->second);
      }
      add(entry.second, to, depth + 1);
    }
  }

  // Through "${other}"; nothing where the key is absent or null.
  std::optional<Value> find(std::string_view path, int depth = 0) const {
    const auto at = values_.find(path);
    if (at == values_.end() || at->second.text.empty()) return std::nullopt;
    const std::string& text = at->second.text;
    if (!text.starts_with("${") || !text.ends_with('}') || depth > 4) return at->second;
    const std::string link = text.substr(2, text.size() - 3);
    return values_.contains(link) ? find(link, depth + 1) : at->second;
  }

  std::optional<Value> take_value(std::string_view path) {
    used_.emplace(path);
    auto value = find(path);
    if (value && value->text.find("${") != std::string::npos)
      fail(path, "a value, or ${KEY} of another key of the file", value->text);
    return value;
  }

  std::optional<std::string> take(std::string_view path) {
    const auto value = take_value(path);
    return value ? std::optional(value->text) : std::nullopt;
  }

  bool flag(std::string_view path, bool otherwise) {
    const auto text = take(path);
    const auto value = text ? truth_of(*text) : otherwise;
    if (!value) fail(path, "true or false", *text);
    return *value;
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
                short_text(std::string(got)));
  }

  void set(std::string_view key, const std::string& value) {
    const auto number = number_of(value);
    const auto truth = truth_of(value);
    set_[std::string(key)] = number  ? number_text(*number)
                             : truth ? fmt::format("{}", *truth)
                                     : yaml_text(value);
  }

  void only(const OnlyValue& row) {
    used_.emplace(row.path);
    const auto there = find(row.path);
    const std::string value = there ? there->text : std::string(row.otherwise);
    const auto number = number_of(value), wanted = number_of(std::string(row.value));
    const auto truth = truth_of(value);
    const bool is_it = number && wanted ? *number == *wanted
                       : truth          ? truth == truth_of(row.value)
                                        : value == row.value;
    if (!is_it) refused_.emplace(row.path, there ? value : value + " (OLMo's default)");
  }

  std::string precision() {
    const std::string value = take("precision").value_or("fp32");
    if (value == "amp_bf16") return "bf16";
    if (value == "amp_fp16") return "fp16";
    if (value == "fp32") return "fp32";
    fail("precision", "amp_bf16, amp_fp16 or fp32", value);
  }

  // By the norms: OLMo's without weights, OLMo 2's behind attention and MLP with norms of queries
  // and keys, or Llama's.
  std::string kind() {
    const std::string norm = take("model.layer_norm_type").value_or("default");
    const bool has_weights = flag("model.layer_norm_with_affine", true),
               is_after = flag("model.norm_after", false),
               has_head_norms = flag("model.attention_layer_norm", false);
    const bool have_weights = flag("model.attention_layer_norm_with_affine", true);
    if (has_head_norms && !have_weights)
      refused_.emplace("model.attention_layer_norm_with_affine", "false");
    if (norm == "default" && !has_weights && !is_after && !has_head_norms) return "olmo";
    if (norm == "rms" && has_weights && is_after && has_head_norms) return "olmo2";
    if (norm == "rms" && has_weights && !is_after && !has_head_norms) return "llama";
    fail("model.layer_norm_type",
         "default without weights, or rms with norm_after and attention_layer_norm both or neither",
         norm);
  }

  // The MLP's size counts gate and up. Without an embedding_size the table has OLMo's default of
  // rows; of null as many as tokens.
  void sizes() {
    const double hidden = number("model.d_model", 768);
    const double ratio = number("model.mlp_ratio", 4);
    set("model.ffn", number_text(number("model.mlp_hidden_size", ratio * hidden) / 2));
    const double vocab = number("model.vocab_size", 50257);
    const bool is_null = values_.contains("model.embedding_size");
    const double rows = number("model.embedding_size", is_null ? vocab : 50304);
    if (rows < vocab) fail("model.embedding_size", "at least vocab_size", number_text(rows));
    set("model.vocab", number_text(rows));
    if (flag("model.multi_query_attention", false)) {
      const double heads = number("model.n_kv_heads", 1);
      if (heads != 1) fail("model.n_kv_heads", "1 of multi_query_attention", number_text(heads));
      set("model.kv_heads", "1");
    }
    const std::string dtype = one_of("data.memmap_dtype", "uint16", "uint32");
    set("data.token_bytes", dtype == "uint32" ? "4" : "2");
  }

  // The first where the file has none.
  std::string one_of(std::string_view path, const std::string& first, const std::string& second) {
    std::string value = take(path).value_or(first);
    if (value != first && value != second)
      fail(path, fmt::format("{} or {}", first, second), value);
    return value;
  }

  double positive(std::string_view path, double otherwise) {
    const double value = number(path, otherwise);
    if (value <= 0) fail(path, "a positive number", number_text(value));
    return value;
  }

  void steps() {
    const double rows = positive("global_train_batch_size", 512),
                 batch = positive("device_train_microbatch_size", 16),
                 seq = positive("model.max_sequence_length", 1024);
    if (std::fmod(rows, batch) != 0)
      fail("global_train_batch_size", "a multiple of device_train_microbatch_size",
           number_text(rows));
    set("train.batch", number_text(batch));
    set("train.accumulate", number_text(rows / batch));
    const bool are_tokens = one_of("scheduler.units", "steps", "tokens") == "tokens";
    const auto steps_of = [&](double value) {
      return number_text(are_tokens ? std::round(value / (rows * seq)) : value);
    };
    set("optim.warmup", steps_of(number("scheduler.t_warmup", 100)));
    const std::string duration = take("max_duration").value_or("10000");
    const std::string unit = duration.ends_with("ep") ? "ep" : duration.ends_with('T') ? "T" : "";
    const auto length = number_of(duration.substr(0, duration.size() - unit.size()));
    if (!length) fail("max_duration", "steps, epochs (2ep) or tokens (2e12T)", duration);
    set(unit == "ep" ? "train.epochs" : "train.steps",
        number_text(unit == "T" ? std::round(*length / (rows * seq)) : *length));
    const auto end = take("scheduler.t_max");
    const auto last = end ? number_of(*end) : std::nullopt;
    const bool is_same = last && unit != "ep" && steps_of(*last) == set_["train.steps"];
    if (end && !is_same) refused_.emplace("scheduler.t_max", *end);
  }

  void leave_out(const std::vector<std::string>& without, OlmoImport& result) {
    for (const std::string& key : without) {
      const auto at = refused_.find(key);
      if (at == refused_.end()) {
        throw Error(ErrorCode::invalid_argument,
                    "--without: expected keys of {} that a run does not have, got '{}'", name_,
                    short_text(key));
      }
      result.left_out.push_back(printable(fmt::format("{}: {}", at->first, at->second)));
      refused_.erase(at);
    }
    if (refused_.empty()) return;
    std::vector<std::string> keys, values;
    for (const auto& [key, value] : refused_) {
      keys.push_back(key);
      values.push_back(fmt::format("{}: {}", key, short_text(value)));
    }
    throw Error(ErrorCode::invalid_argument,
                "{}: expected keys that a run has, got {} (left out by --without {})", name_,
                fmt::join(values, ", "), fmt::join(keys, ","));
  }

  std::string yaml() const {
    std::string text, section;
    for (const auto& [key, value] : set_) {
      const size_t dot = key.find('.'), begin = dot == key.npos ? 0 : dot + 1;
      if (begin > 0 && key.substr(0, dot) != section)
        text += fmt::format("{}:\n", section = key.substr(0, dot));
      text += fmt::format("{}{}: {}\n", begin > 0 ? "  " : "", key.substr(begin), value);
    }
    return text;
  }

  std::string name_;
  std::map<std::string, Value, std::less<>> values_;  // of the file, by path
  std::map<std::string, int> first_line_;             // of keys, by path
  std::set<std::string, std::less<>> used_;
  std::map<std::string, std::string> set_;      // of the run, in YAML
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
