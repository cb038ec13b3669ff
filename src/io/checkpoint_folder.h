// The folder of one checkpoint: its name, the names in it, and its removal.
//
// Only the four files of a checkpoint are ever removed, and folders that are empty without them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/files.h"

namespace octet {

inline constexpr std::string_view kModel = "model.safetensors", kOptim = "optim.safetensors";
inline constexpr std::string_view kManifest = "manifest.json", kComplete = "COMPLETE";
inline constexpr std::string_view kTemporary = ".tmp", kSetAside = ".old";

// "step-000100" or "step-000100.old"; nothing for other names.
std::optional<int64_t> step_of(std::string_view name);
// "step-000100.tmp" of earlier versions, "step-000100.PID-RANDOM.tmp" of a process that has ended.
bool is_left_over_save(std::string_view name);

// A folder that somebody gave another number holds another step than it says: the error; else "".
std::string wrong_name(const Files& files, const std::string& path);
// A folder with no file of a checkpoint is one of something else; an empty one is what a removal
// left that did not come to its end.
bool holds_part_of_checkpoint(const Files& files, const std::string& path);
// The marker goes first, so that a half-removed checkpoint never looks whole. What else lies in the
// folder is somebody's, and stays with it.
void remove_checkpoint(Files& files, const std::string& path);

}  // namespace octet
