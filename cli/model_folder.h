// The folder that a --model of the command line means, where it is none itself: what a run
// exported, a model of the hub's local cache, or a GGUF file.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "base/files.h"
#include "base/log.h"

namespace octet {

// Look-up in the environment: ::getenv, or a test's own.
using GetEnv = std::function<const char*(const char*)>;

// True if it reads as a model's name on the hub: "org/name".
bool is_hub_name(const std::string& model);

// The snapshot of org/name that refs/main of the local cache names: HF_HUB_CACHE, else HF_HOME/hub,
// else ~/.cache/huggingface/hub. nullopt where it has none with a config.json
// or an adapter_config.json.
std::optional<std::string> hub_snapshot(const Files& files, const std::string& model,
                                        const GetEnv& env);

// For commands that read runs too: the path itself, or the snapshot of a hub's name where no such
// path is there. Of a GGUF file the folder in which all but its weights is kept, octet/gguf/HASH of
// XDG_CACHE_HOME, else ~/.cache (infer/import_gguf.h, link_gguf). Throws Error{bad_data} with the
// command that downloads a model where none is there.
std::string model_path(Files& files, const std::string& model, const Log& log);

// The same of a model and an adapter beside it, "" where there is none. Where the model is an
// adapter's folder (PEFT), its base and the adapter. Throws as model_path() does.
struct ModelPaths {
  std::string model, adapter;
};
ModelPaths model_paths(Files& files, const std::string& model, const std::string& adapter,
                       const Log& log);

// For training and planning, which start from a folder: of a run its export. Throws Error{bad_data}
// with the `octet convert` line where there is no export that is a model.
std::string model_folder(Files& files, const std::string& model, const Log& log);

}  // namespace octet
