#include "infer/sentence_folder.h"

#include <algorithm>
#include <optional>
#include <set>
#include <vector>

#include "base/error.h"
#include "base/json.h"
#include "infer/export.h"
#include "infer/folder_keys.h"
#include "nn/shape.h"

namespace octet {
namespace {

constexpr const char* kModules = "modules.json";
constexpr const char* kSentenceConfig = "config_sentence_transformers.json";
constexpr const char* kModuleConfig = "config.json";
// Files in which sentence-transformers looks for the Transformer's settings; the first that says
// something counts.
constexpr const char* kSettings[] = {
    kSentenceSettings,
    "sentence_roberta_config.json",
    "sentence_distilbert_config.json",
    "sentence_camembert_config.json",
    "sentence_albert_config.json",
    "sentence_xlm-roberta_config.json",
    "sentence_xlnet_config.json",
};
constexpr const char* kVector = "sentence_embedding";  // its name between modules

[[noreturn]] void fail(const std::string& path, std::string_view expected, std::string_view got) {
  throw Error(ErrorCode::bad_data, "[embed] {}: expected {}, got {}", path, expected, got);
}

// A file of a folder, or what a run keeps of it.
std::optional<Json> read_json(const Files& files, const std::string& folder,
                              const std::string& name) {
  if (const std::string path = join_path(folder, name); files.exists(path))
    return parse_json(files.read_text(path), path);
  const std::string note = join_path(folder, kSentenceNote);
  if (!files.exists(note)) return std::nullopt;
  const Json all = parse_json(files.read_text(note), note);
  return all.contains(name) ? std::optional(all[name]) : std::nullopt;
}

// Last part of "sentence_transformers.models.Pooling", in any package of the library's; the whole
// name of a class of someone else's.
std::string class_of(const JsonObject& module) {
  std::string type = module.string("type");
  const bool is_own = type.starts_with("sentence_transformers.");
  return is_own ? type.substr(type.rfind('.') + 1) : type;
}

// "1_Pooling": a folder of the model's, not one that lies elsewhere.
std::string folder_of(const JsonObject& module) {
  std::string path = module.string_or("path", "");
  if (path == "." || path == ".." || path.find('/') != path.npos || path.find('\\') != path.npos)
    fail(module.where(), "modules in folders of the model's", path);
  return path;
}

std::string config_of(const JsonObject& module) {
  return join_path(folder_of(module), kModuleConfig);
}

void expect(const JsonObject& config, const std::string& key, const Json& value) {
  if (config.has(key) && config.at(key) != value)
    fail(config.where(), fmt::format("{}: {}", key, value.dump()), config.at(key).dump());
}

bool is_neutral_setting(const std::string& key) {
  for (const FolderKeys& keys : folder_keys()) {
    if (keys.file == kSentenceSettings && std::ranges::count(keys.neutral, key) > 0) return true;
  }
  return false;
}

// Another output of the model, another tokenizer or configuration than the folder's files say.
void expect_plain_transformer(const JsonObject& config) {
  if (config.boolean_or("do_lower_case", false))
    fail(config.where(), "do_lower_case: false", "true");
  expect(config, "transformer_task", "feature-extraction");
  expect(config, "module_output_name", "token_embeddings");
  if (config.has("modality_config"))
    expect(config.object("modality_config"), "text",
           {{"method", "forward"}, {"method_output_name", "last_hidden_state"}});
  if (config.has("tokenizer_name_or_path"))
    fail(config.where(), "no tokenizer_name_or_path", config.at("tokenizer_name_or_path").dump());
  for (const std::string group : {"model_args", "model_kwargs", "tokenizer_args", "config_args",
                                  "processor_kwargs", "config_kwargs", "processing_kwargs"}) {
    if (!config.has(group)) continue;
    for (const auto& [key, value] : config.object(group).items()) {
      if (value.is_null() || is_neutral_setting(fmt::format("{}/{}", group, key))) continue;
      fail(config.where(), fmt::format("no {} in {}", key, group), value.dump());
    }
  }
}

// Texts of a batch that would change each other's vectors: without a mask the shorter ones have
// padding among their tokens, and padding before a text moves positions that count from the row's
// begin (roberta's do not).
void expect_plain_padding(const Files& files, const std::string& folder) {
  constexpr const char* kTokenizer = "tokenizer_config.json";
  const std::string path = join_path(folder, kTokenizer);
  const Json config = read_json(files, folder, kTokenizer).value_or(Json::object());
  const Json names = config.value("model_input_names", Json());
  if (names.is_array() && std::ranges::count(names, Json("attention_mask")) == 0)
    fail(path, "model_input_names with attention_mask", names.dump());
  const Json model = read_json(files, folder, kModuleConfig).value_or(Json::object());
  const Json kind = model.value("model_type", Json());
  if (kind != "bert" && kind != "distilbert") return;
  if (config.contains("padding_side")) {
    const Json& side = config.at("padding_side");
    if (side != "right") fail(path, "padding_side: right", side.dump());
    return;
  }
  constexpr const char* kTokens = "tokenizer.json";
  const Json tokens = read_json(files, folder, kTokens).value_or(Json::object());
  const Json padding = tokens.is_object() ? tokens.value("padding", Json()) : Json();
  if (padding.is_object() && padding.value("direction", Json("Right")) != "Right")
    fail(join_path(folder, kTokens), "padding with direction Right", padding["direction"].dump());
}

// True of a default prompt that puts nothing before a text.
bool is_empty_prompt(const JsonObject& config) {
  const Json prompts = config.has("prompts") ? config.at("prompts") : Json();
  return prompts.is_object() &&
         prompts.value(config.string("default_prompt_name"), Json()) == Json("");
}

// Settings with which sentence-transformers would not load a module, or name other vectors.
void expect_plain_normalize(const Files& files, const std::string& folder,
                            const std::string& name) {
  const std::optional<Json> json = read_json(files, folder, name);
  if (!json) return;
  const JsonObject config(*json, join_path(folder, name));
  expect(config, "module_input_name", kVector);
  expect(config, "module_output_name", kVector);
}

bool is_pooling_key(const std::string& key) {
  return key.starts_with("pooling_mode") || key == "include_prompt" ||
         key == "embedding_dimension" || key == "word_embedding_dimension";
}

// "pooling_mode_mean_tokens": true, of several the one that is true; newer files name it.
Pooling read_pooling(const Files& files, const std::string& folder, const std::string& name) {
  const std::string path = join_path(folder, name);
  const std::optional<Json> json = read_json(files, folder, name);
  if (!json) fail(path, "the pooling's settings", "no file");
  const JsonObject config(*json, path);
  constexpr std::string_view kExpected = "one mode, mean or cls";
  for (const auto& [key, value] : config.items()) {
    if (!is_pooling_key(key) && !value.is_null()) fail(path, "keys of Pooling", key);
  }
  if (config.has("pooling_mode")) {
    const std::string mode = config.string("pooling_mode");
    if (mode != "mean" && mode != "cls") fail(path, kExpected, mode);
    return mode == "mean" ? Pooling::mean : Pooling::cls;
  }
  std::vector<std::string> modes;
  for (const auto& [key, value] : config.items()) {
    if (key.starts_with("pooling_mode_") && value == true) modes.push_back(key);
  }
  if (modes.empty()) return Pooling::mean;  // as sentence-transformers has it
  if (modes.size() != 1) fail(path, kExpected, fmt::format("{} modes", modes.size()));
  if (modes.front() == "pooling_mode_mean_tokens") return Pooling::mean;
  if (modes.front() == "pooling_mode_cls_token") return Pooling::cls;
  fail(path, kExpected, modes.front());
}

void read_modules(const Files& files, const std::string& folder, SentenceFolder& to) {
  const std::string path = join_path(folder, kModules);
  const std::optional<Json> modules = read_json(files, folder, kModules);
  if (!modules) return;
  if (!modules->is_array()) fail(path, "a list of modules", modules->type_name());
  to.is_said = true;
  to.normalizes = false;
  bool is_pooled = false;
  for (const Json& one : *modules) {
    const JsonObject module(one, path);
    const std::string type = class_of(module);
    if (type == "Transformer" && !is_pooled) {
      if (!folder_of(module).empty()) fail(path, "Transformer beside it", folder_of(module));
      continue;
    }
    if (type == "Pooling" && !is_pooled) {
      to.pooling = read_pooling(files, folder, config_of(module));
      is_pooled = true;
    } else if (type == "Normalize" && is_pooled) {
      to.normalizes = true;
      if (!folder_of(module).empty()) expect_plain_normalize(files, folder, config_of(module));
    } else {
      fail(path, "Transformer, Pooling and perhaps Normalize", type);
    }
  }
  if (!is_pooled) fail(path, "a module Pooling", "none");
}

// The folders of modules, "" where one has none.
std::vector<std::string> module_folders(const Files& files, const std::string& folder) {
  std::vector<std::string> folders;
  const std::string path = join_path(folder, kModules);
  const std::optional<Json> modules = read_json(files, folder, kModules);
  if (!modules || !modules->is_array()) return folders;
  for (const Json& one : *modules) folders.push_back(folder_of(JsonObject(one, path)));
  return folders;
}

// The names of all JSON files that say how a text becomes a vector.
std::vector<std::string> sentence_names(const Files& files, const std::string& folder) {
  std::vector<std::string> names = {kModules, sentence_settings(files, folder), kSentenceConfig};
  for (const std::string& module : module_folders(files, folder)) {
    if (!module.empty()) names.push_back(join_path(module, kModuleConfig));
  }
  return names;
}

Json module_of(int64_t number, const std::string& path, const std::string& type) {
  return {{"idx", number},
          {"name", fmt::to_string(number)},
          {"path", path},
          {"type", "sentence_transformers.models." + type}};
}

// Files of a model that began here.
Json own_files(const ModelSpec& spec) {
  const bool is_cls = spec.pooling == Pooling::cls;
  Json all = Json::object();
  all[kModules] =
      Json::array({module_of(0, "", "Transformer"), module_of(1, "1_Pooling", "Pooling"),
                   module_of(2, "2_Normalize", "Normalize")});
  all[join_path("1_Pooling", kModuleConfig)] = {{"word_embedding_dimension", spec.hidden},
                                                {"pooling_mode_cls_token", is_cls},
                                                {"pooling_mode_mean_tokens", !is_cls},
                                                {"pooling_mode_max_tokens", false},
                                                {"pooling_mode_mean_sqrt_len_tokens", false}};
  all[kSentenceSettings] = {{"max_seq_length", longest_row(spec)}, {"do_lower_case", false}};
  return all;
}

void write_json(Files& files, const std::string& path, const Json& json) {
  files.create_directories(parent_path(path));
  write_atomically(files, path, json.dump(2) + "\n");
}

// All of a folder's, as it is: a module may have weights.
void copy_sentence_files(Files& files, const std::string& from, const std::string& to,
                         const Log& log) {
  for (const char* name : {kModules, sentence_settings(files, from), kSentenceConfig})
    copy_companion(files, join_path(from, name), join_path(to, name), log);
  for (const std::string& module : module_folders(files, from)) {
    const std::string folder = join_path(from, module);
    if (module.empty() || !files.is_directory(folder)) continue;
    for (const DirectoryEntry& entry : files.list(folder))
      copy_companion(files, join_path(folder, entry.name),
                     join_path(join_path(to, module), entry.name), log);
  }
}

}  // namespace

const char* sentence_settings(const Files& files, const std::string& folder) {
  for (const char* name : kSettings) {
    const std::optional<Json> json = read_json(files, folder, name);
    if (json && !json->empty()) return name;
  }
  return kSentenceSettings;
}

SentenceFolder read_sentence_folder(const Files& files, const std::string& folder,
                                    std::optional<Pooling> pooling) {
  SentenceFolder result;
  if (pooling) {
    result.pooling = *pooling;
  } else {
    read_modules(files, folder, result);
  }
  expect_plain_padding(files, folder);
  const char* settings = sentence_settings(files, folder);
  if (const std::optional<Json> json = read_json(files, folder, settings))
    expect_plain_transformer(JsonObject(*json, join_path(folder, settings)));
  if (const std::optional<Json> json = read_json(files, folder, kSentenceConfig)) {
    const std::string path = join_path(folder, kSentenceConfig);
    const JsonObject config(*json, path);
    if (config.has("default_prompt_name") && !is_empty_prompt(config))
      fail(path, "no default_prompt_name", config.string("default_prompt_name"));
    // Any other, null too, is converted to other modules than modules.json has.
    if (json->value("model_type", Json("SentenceTransformer")) != "SentenceTransformer")
      fail(path, "model_type: SentenceTransformer", json->at("model_type").dump());
    result.width = config.integer_or("truncate_dim", 0);
    if (config.has("truncate_dim") && result.width < 1)
      fail(path, "truncate_dim: a number of values", fmt::to_string(result.width));
  }
  return result;
}

int64_t max_tokens_of_folder(const Files& files, const std::string& folder, int64_t most) {
  const char* settings = sentence_settings(files, folder);
  if (const std::optional<Json> json = read_json(files, folder, settings)) {
    const std::string path = join_path(folder, settings);
    const int64_t n = JsonObject(*json, path).integer_or("max_seq_length", 0);
    if (n < 0) fail(path, "max_seq_length: a number of tokens", fmt::to_string(n));
    if (n > 0) return std::min(n, most);
  }
  const std::optional<Json> json = read_json(files, folder, "tokenizer_config.json");
  if (!json || !json->is_object()) return 0;
  const Json n = json->value("model_max_length", Json());  // 1e30 where nobody set it
  const bool is_less = n.is_number() && n >= 1 && n < most;
  return is_less ? n.get<int64_t>() : 0;
}

void keep_sentence_files(Files& files, const std::string& model, const std::string& run,
                         const Log& log) {
  if (model.empty() || !files.exists(join_path(model, kModules))) return;
  try {
    read_sentence_folder(files, model);
  } catch (const Error& error) {
    return log.warning("{}; exports of this run have no modules.json", error.what());
  }
  Json all = Json::object();
  std::vector<std::string> names = sentence_names(files, model);
  names.emplace_back("tokenizer_config.json");  // has a length
  for (const std::string& name : names) {
    if (auto json = read_json(files, model, name)) all[name] = *std::move(json);
  }
  write_json(files, join_path(run, kSentenceNote), all);
}

void put_sentence_files(Files& files, const ModelSource& source, const std::string& folder,
                        const Log& log) {
  if (!source.run) return copy_sentence_files(files, source.folder, folder, log);
  const ModelDef& def = model_def(source.spec.kind);
  const ModelHead head = def.heads.empty() ? ModelHead::text : head_of(source.spec).head;
  const bool is_of_tokens = head == ModelHead::features || head == ModelHead::masked;
  if (head != ModelHead::embeddings && !is_of_tokens) return;
  const std::string note = join_path(source.folder, kSentenceNote);
  Json all = Json::object();
  if (files.exists(note)) {
    all = parse_json(files.read_text(note), note);
    all.erase("tokenizer_config.json");  // goes with the tokenizer
  } else if (head == ModelHead::embeddings) {
    all = own_files(source.spec);
  }
  for (const auto& [name, json] : all.items()) write_json(files, join_path(folder, name), json);
}

void remove_sentence_files(Files& files, const std::string& folder) {
  const std::vector<std::string> modules = module_folders(files, folder);
  for (const std::string& module : std::set(modules.begin(), modules.end())) {
    const std::string path = join_path(folder, module);
    if (module.empty() || files.entry_kind(path) != EntryKind::directory) continue;
    const std::string config = join_path(path, kModuleConfig);
    if (files.entry_kind(config) == EntryKind::file) files.remove(config);
    if (files.list(path).empty()) files.remove(path);
  }
}

}  // namespace octet
