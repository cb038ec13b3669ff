// The run directory's checkpoints: DIR/step-000100/{model.safetensors, optim.safetensors,
// manifest.json, COMPLETE}.
//
// A save writes into a folder of a temporary name, syncs each file and the directory, renames the
// directory, and writes COMPLETE (sizes and XXH64 of the files) last and atomically. So at every
// moment, kill -9 and power loss included, each checkpoint either is whole or has no valid
// COMPLETE; earlier ones are untouched until the new one is whole. Format:
// docs/formats/checkpoint.md.
//
// Only the four files of a checkpoint are ever removed, and folders that are empty without them.
// Links to checkpoints are followed for reading and never removed.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/files.h"
#include "base/log.h"
#include "io/checkpoint_marker.h"
#include "io/checkpoint_parts.h"
#include "io/manifest.h"
#include "io/safetensors.h"

namespace octet {

// PositionalHash of what one rank wrote of the two files.
struct PartHashes {
  uint64_t model = 0, optim = 0;
};

struct CheckpointContents {
  Manifest manifest;  // the tensor lists are filled in by save
  std::vector<TensorSource> model;
  std::vector<TensorSource> optim;
  KeyValues model_metadata = {};  // of the model's file
};

// Which checkpoints a save leaves: the newest, at least 1, and that of one step besides.
struct KeptCheckpoints {
  KeptCheckpoints(int n_newest, std::optional<int64_t> also_step = {})
      : newest(n_newest), also(also_step) {}
  int newest = 1;
  std::optional<int64_t> also;
};

struct CheckpointEntry {
  int64_t step = 0;
  std::string path;
  std::string problem;       // "" when COMPLETE is there and the sizes agree
  bool is_reachable = true;  // else nothing can be told: a link that leads nowhere, no permission
  bool is_link = false;
  bool is_whole() const { return problem.empty(); }
  bool operator==(const CheckpointEntry&) const = default;
};

struct LoadedCheckpoint {
  std::string path;
  Manifest manifest;
  SafetensorsReader model;
  SafetensorsReader optim;
};

class Checkpoints {
 public:
  // `folder` is RUN/ckpt; save makes it.
  Checkpoints(Files& files, std::string folder, Log log = {});

  // Writes the checkpoint of contents.manifest.step and then removes older whole ones that are not
  // to be kept. A whole checkpoint of the same step is replaced, and set aside as step-N.old until
  // the new one is whole. Throws Error{io}: what failed, and which checkpoint is the newest whole
  // one now.
  void save(const CheckpointContents& contents, const KeptCheckpoints& keep);

  // The same by several ranks at once. One begins: makes the folder and empty tensor files in it.
  // Each writes its parts of the tensors, and one the headers. When all have, the first completes,
  // with everybody's hashes. Errors as of save(); the first then abandons what it began.
  std::string begin(int64_t step);
  PartHashes write_part(const std::string& temporary, const CheckpointContents& contents,
                        FileHeader header);
  void complete(const std::string& temporary, const CheckpointContents& contents,
                std::span<const PartHashes> parts, const KeptCheckpoints& keep);
  void abandon(const std::string& temporary) { discard(temporary); }

  // By step, ascending; hashes are not read. What other processes remove meanwhile is left out.
  std::vector<CheckpointEntry> list() const;

  // The newest checkpoint that passes load(); others are skipped with a warning. Nothing where no
  // save ever came to its end; Error{bad_data} where some did, but none can be read now: to start
  // anew would throw away what may still be mended. Error{io} where one that may be newer cannot be
  // reached.
  std::optional<LoadedCheckpoint> newest() const;

  // Removes all checkpoints but links, whole or not.
  void remove_all();
  // Checkpoints that a save would remove of those older than the loaded one: a save that was killed
  // may not have come so far. tidy() removes them; what cannot be removed is a warning.
  std::vector<std::string> left_behind(const KeptCheckpoints& keep,
                                       const std::string& loaded) const;
  void tidy(const KeptCheckpoints& keep, const std::string& loaded);

  // Verifies sizes and hashes, then opens. Whatever goes wrong is an Error: bad_data, io, or device
  // where memory is too small.
  LoadedCheckpoint load(const std::string& checkpoint_path) const;

 private:
  std::string path_of(int64_t step) const;
  template <typename Work>
  auto attempt(int64_t step, const Work& work) const;
  // The manifest; what the marker will say.
  std::string finish_files(const CheckpointContents& contents, const std::string& folder,
                           Marker marks);
  void publish(const std::string& temporary, const std::string& path, const std::string& marker);
  void put_in_place(const std::string& temporary, const std::string& path);
  void discard(const std::string& temporary);
  std::vector<std::string> outdated(const std::vector<CheckpointEntry>& entries,
                                    const KeptCheckpoints& keep,
                                    const std::string& just_saved) const;
  std::vector<std::string> left_over_saves() const;
  void remove_or_warn(const std::function<std::vector<std::string>()>& paths);
  void free_name(const std::string& path);
  std::string what_is_left() const;
  std::optional<LoadedCheckpoint> newest_of(const std::vector<CheckpointEntry>& entries) const;
  CheckpointEntry inspect(const std::string& path) const;
  std::string problem_of(const std::string& path) const { return inspect(path).problem; }
  std::string why_not_whole(const std::string& path) const;
  void verify(const std::string& path) const;
  LoadedCheckpoint open(const std::string& checkpoint_path) const;

  Files& files_;
  std::string folder_;
  Log log_;
};

}  // namespace octet
