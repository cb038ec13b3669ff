#include "cli/model_folder.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <utility>

#include "base/error.h"
#include "base/gguf.h"
#include "infer/import_gguf.h"
#include "infer/model_source.h"
#include "infer/peft_adapter.h"

namespace octet {
namespace {

constexpr const char* kConfigFile = "config.json";

bool is_name_part(std::string_view part) {
  return !part.empty() && part.front() != '.' && part.front() != '-' &&
         std::ranges::all_of(part, [](char ch) {
           return (ch >= 'a' && ch <= 'z') || (ch >= 'A' && ch <= 'Z') ||
                  (ch >= '0' && ch <= '9') || ch == '.' || ch == '_' || ch == '-';
         });
}

std::string value_of(const GetEnv& env, const char* name) {
  const char* text = env(name);
  return text == nullptr ? "" : text;
}

// A folder of the user's cache. Empty where not even a home is known.
std::string user_cache(const GetEnv& env, std::string_view folder) {
  const std::string cache = value_of(env, "XDG_CACHE_HOME"), home = value_of(env, "HOME");
  if (cache.empty() && home.empty()) return "";
  return join_path(cache.empty() ? join_path(home, ".cache") : cache, folder);
}

std::string hub_cache(const GetEnv& env) {
  if (std::string cache = value_of(env, "HF_HUB_CACHE"); !cache.empty()) return cache;
  if (const std::string home = value_of(env, "HF_HOME"); !home.empty())
    return join_path(home, "hub");
  return user_cache(env, "huggingface/hub");
}

bool is_gguf_file(const Files& files, const std::string& path) {
  return is_gguf_name(path) && files.kind(path) == EntryKind::file;
}

// Folder of what a GGUF file says beside its weights.
std::string folder_of_gguf(Files& files, const std::string& path, const Log& log) {
  const std::string cache = user_cache(::getenv, "octet/gguf");
  if (cache.empty()) {
    throw Error(ErrorCode::invalid_argument,
                "[model] '{}': expected HOME or XDG_CACHE_HOME, where what a GGUF file says of its "
                "model is kept, got neither: `octet convert {} DIR` makes a folder",
                path, path);
  }
  const std::string absolute = std::filesystem::absolute(path).lexically_normal().string();
  std::string folder = join_path(cache, gguf_identity(files, absolute));
  link_gguf(files, absolute, folder, log);
  return folder;
}

bool has_config(const Files& files, const std::string& folder) {
  return files.exists(join_path(folder, kConfigFile));
}

std::string trimmed(std::string text) {
  text.erase(text.find_last_not_of(" \t\r\n") + 1);
  return text;
}

}  // namespace

bool is_hub_name(const std::string& model) {
  const size_t slash = model.find('/');
  return slash != std::string::npos && is_name_part(model.substr(0, slash)) &&
         is_name_part(model.substr(slash + 1));
}

std::optional<std::string> hub_snapshot(const Files& files, const std::string& model,
                                        const GetEnv& env) {
  const std::string cache = hub_cache(env);
  if (!is_hub_name(model) || cache.empty()) return std::nullopt;
  const size_t slash = model.find('/');
  const std::string folder =
      join_path(cache, "models--" + model.substr(0, slash) + "--" + model.substr(slash + 1));
  const std::string ref = join_path(folder, "refs/main");
  if (!files.exists(ref)) return std::nullopt;
  const std::string commit = trimmed(files.read_text(ref));
  const std::string snapshot = join_path(folder, "snapshots/" + commit);
  const bool is_there = has_config(files, snapshot) || is_adapter_folder(files, snapshot);
  return is_name_part(commit) && is_there ? std::optional(snapshot) : std::nullopt;
}

std::string model_path(Files& files, const std::string& model, const Log& log) {
  if (is_gguf_file(files, model)) return folder_of_gguf(files, model, log);
  if (files.exists(model) || !is_hub_name(model)) return model;
  if (const auto snapshot = hub_snapshot(files, model, ::getenv)) return *snapshot;
  if (files.is_directory(model.substr(0, model.find('/')))) {  // runs/first, which is not there
    throw Error(ErrorCode::bad_data,
                "[model] '{}': expected a run or a model folder, got no such path", model);
  }
  throw Error(ErrorCode::bad_data,
              "[model] '{}': expected a folder, or a model of the hub's local cache, got neither: "
              "`hf download {}` puts it there",
              model, model);
}

ModelPaths model_paths(Files& files, const std::string& model, const std::string& adapter,
                       const Log& log) {
  ModelPaths paths{.model = model_path(files, model, log),
                   .adapter = adapter.empty() ? "" : model_path(files, adapter, log)};
  if (!paths.adapter.empty() || !is_adapter_folder(files, paths.model)) return paths;
  const PeftConfig config = read_peft_config(files, paths.model);
  const bool is_named = !config.base.empty();
  if (is_named && !files.exists(config.base) && !config.revision.empty() &&
      config.revision != "main") {
    throw Error(ErrorCode::bad_data,
                "[adapter] {}: 'revision': expected main, got {}: --model BASE --adapter {} names "
                "the base",
                paths.model, config.revision, model);
  }
  if (!is_named) {
    throw Error(ErrorCode::bad_data,
                "[adapter] {}: expected base_model_name_or_path, got none: --model BASE --adapter "
                "{} names the base",
                paths.model, model);
  }
  paths.adapter = std::exchange(paths.model, model_path(files, config.base, log));
  return paths;
}

std::string model_folder(Files& files, const std::string& model, const Log& log) {
  std::string path = model_path(files, model, log);
  if (!is_run(files, path)) {
    if (has_config(files, path)) return path;
    throw Error(
        ErrorCode::bad_data,
        "[model] '{}': expected a model folder (config.json, model.safetensors), a run with "
        "an export, a .gguf file, or org/name of the hub's local cache, got {}",
        model, files.exists(path) ? "a folder without config.json" : "no such path");
  }
  std::string exported = join_path(path, "export");
  if (has_config(files, exported)) return exported;
  // A folder that is free to write: an export of adapters alone has the name.
  const std::string target = files.exists(exported) ? path + "-model" : exported;
  throw Error(
      ErrorCode::bad_data,
      "[model] '{}': expected a model folder, got a run {}: `octet convert {} {}` makes one", model,
      files.exists(exported) ? "whose export is no model" : "without an export", path, target);
}

}  // namespace octet
