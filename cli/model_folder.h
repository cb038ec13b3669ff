// The folder that a --model of the command line means, where it is none itself: what a run
// exported, or a model of the hub's local cache.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "base/files.h"

namespace octet {

// Of the environment: ::getenv, or a test's own.
using GetEnv = std::function<const char*(const char*)>;

// Whether it reads as a model's name on the hub: "org/name".
bool is_hub_name(const std::string& model);

// The snapshot of org/name that refs/main of the local cache names: HF_HUB_CACHE, else HF_HOME/hub,
// else ~/.cache/huggingface/hub. nullopt where it has none with a config.json
// or an adapter_config.json.
std::optional<std::string> hub_snapshot(const Files& files, const std::string& model,
                                        const GetEnv& env);

// For commands that read runs too: the path itself, or the snapshot of a hub's name where no such
// path is there. Throws Error{bad_data} with the command that downloads it where neither is.
std::string model_path(const Files& files, const std::string& model);

// The same of a model and an adapter beside it, "" where there is none. Where the model is an
// adapter's folder (PEFT), its base and the adapter. Throws as model_path() does.
struct ModelPaths {
  std::string model, adapter;
};
ModelPaths model_paths(const Files& files, const std::string& model, const std::string& adapter);

// For training and planning, which start from a folder: of a run its export. Throws Error{bad_data}
// with the `octet convert` line where there is no export that is a model.
std::string model_folder(const Files& files, const std::string& model);

}  // namespace octet
