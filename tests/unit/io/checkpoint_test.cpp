#include "io/checkpoint.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <functional>

#include "base/json.h"
#include "io/checkpoint_marker.h"
#include "unit/base/error_of.h"
#include "unit/base/faulty_files.h"
#include "unit/base/scratch_folder.h"
#include "unit/io/bytes.h"

namespace octet::io_checkpoint_test {
namespace {

using test::as_string;
using test::error_of;
using test::Fault;
using test::FaultMode;
using test::FaultyFiles;
using test::ScratchFolder;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::MatchesRegex;

// A checkpoint whose every part tells its step and version.
struct Fixture {
  explicit Fixture(int64_t step, const std::string& version = "v1") {
    text = fmt::format("{}-{:06}!", version, step);
    contents.manifest = {.step = step,
                         .attempted = step + 1,
                         .skipped = 1,
                         .tokens = 1000 * step,
                         .seed = UINT64_MAX,
                         .recipe = "coat",
                         .loader = {{"position", "7"}},
                         .extra = {{"loss_scale", "1024"}},
                         .config = {{"model.heads", "4"}},
                         .machine = {{"device", "cpu"}, {"isa", "avx2"}},
                         .uses = {{"w.m", {"moment1", "w"}}}};
    const auto n = static_cast<int64_t>(text.size());
    contents.model = {span_source(tensor_decl("w", Dtype::u8, {n}), as_bytes(text))};
    contents.optim = {span_source(tensor_decl("w.m", Dtype::hif8, {n}), as_bytes(text))};
  }
  std::string text;
  CheckpointContents contents;
};

std::string text_of(const LoadedCheckpoint& checkpoint) {
  const std::string model = as_string(checkpoint.model.read("w"));
  EXPECT_EQ(as_string(checkpoint.optim.read("w.m")), model);
  return model;
}

std::vector<int64_t> whole_steps(const Checkpoints& checkpoints) {
  std::vector<int64_t> steps;
  for (const CheckpointEntry& entry : checkpoints.list()) {
    if (entry.is_whole()) steps.push_back(entry.step);
  }
  return steps;
}

TEST(Checkpoint, everything_comes_back) {
  const ScratchFolder run;
  Checkpoints checkpoints(posix_files(), run / "ckpt");
  EXPECT_FALSE(checkpoints.newest());
  const Fixture fixture(100);
  checkpoints.save(fixture.contents, 2);
  const std::string folder = run / "ckpt/step-000100";
  std::vector<std::string> names;
  for (const auto& entry : posix_files().list(folder)) names.push_back(entry.name);
  EXPECT_THAT(names,
              ElementsAre("COMPLETE", "manifest.json", "model.safetensors", "optim.safetensors"));
  const auto loaded = checkpoints.newest();
  ASSERT_TRUE(loaded);
  EXPECT_EQ(loaded->path, folder);
  EXPECT_EQ(text_of(*loaded), fixture.text);
  const Manifest& manifest = loaded->manifest;
  EXPECT_EQ(manifest.step, 100);
  EXPECT_EQ(manifest.attempted, 101);
  EXPECT_EQ(manifest.skipped, 1);
  EXPECT_EQ(manifest.tokens, 100'000);
  EXPECT_EQ(manifest.seed, UINT64_MAX);
  EXPECT_EQ(manifest.recipe, "coat");
  EXPECT_EQ(manifest.loader.at("position"), "7");
  EXPECT_EQ(manifest.extra.at("loss_scale"), "1024");
  EXPECT_EQ(manifest.config.at("model.heads"), "4");
  EXPECT_EQ(manifest.machine.at("isa"), "avx2");
  EXPECT_EQ(manifest.uses.at("w.m"), (TensorUse{"moment1", "w"}));
  EXPECT_EQ(manifest.model_tensors.at("w"), "u8");
  EXPECT_EQ(manifest.optim_tensors.at("w.m"), "hif8");
}

TEST(Checkpoint, equal_contents_give_equal_bytes) {
  const ScratchFolder a, b;
  for (const ScratchFolder* run : {&a, &b}) {
    Checkpoints(posix_files(), run->path()).save(Fixture(5).contents, 1);
  }
  for (const char* name : {"COMPLETE", "manifest.json", "model.safetensors", "optim.safetensors"}) {
    const std::string file = std::string("step-000005/") + name;
    EXPECT_EQ(posix_files().read_text(a / file), posix_files().read_text(b / file));
  }
}

TEST(Checkpoint, the_newest_ones_are_kept) {
  const ScratchFolder run;
  Checkpoints checkpoints(posix_files(), run.path());
  for (const int64_t step : {1, 2, 3, 1'000'000}) checkpoints.save(Fixture(step).contents, 2);
  EXPECT_THAT(whole_steps(checkpoints), ElementsAre(3, 1'000'000));
  // A checkpoint that another run left with a higher number does not cost the one just saved.
  checkpoints.save(Fixture(4).contents, 1);
  EXPECT_THAT(whole_steps(checkpoints), ElementsAre(4, 1'000'000));
}

TEST(Checkpoint, one_may_be_kept_besides_the_newest) {
  const ScratchFolder run;
  Checkpoints checkpoints(posix_files(), run.path());
  for (const int64_t step : {1, 2, 3, 4}) checkpoints.save(Fixture(step).contents, {1, 2});
  EXPECT_THAT(whole_steps(checkpoints), ElementsAre(2, 4));
  checkpoints.save(Fixture(5).contents, {2, 5});
  EXPECT_THAT(whole_steps(checkpoints), ElementsAre(4, 5));
}

TEST(Checkpoint, a_step_saved_again_is_replaced) {
  const ScratchFolder run;
  Checkpoints checkpoints(posix_files(), run.path());
  checkpoints.save(Fixture(7, "v1").contents, 2);
  checkpoints.save(Fixture(7, "v2").contents, 2);
  EXPECT_EQ(text_of(*checkpoints.newest()), Fixture(7, "v2").text);
  EXPECT_EQ(posix_files().list(run.path()).size(), 1u);
}

TEST(Checkpoint, damaged_and_incomplete_ones_are_skipped_with_a_warning) {
  const struct {
    std::string name;
    std::function<void(const ScratchFolder&)> damage;
    std::string warning;
  } cases[] = {
      {"no marker", [](const auto& run) { posix_files().remove(run / "step-000002/COMPLETE"); },
       "it has no COMPLETE marker"},
      {"empty marker", [](const auto& run) { run.put("step-000002/COMPLETE", ""); },
       "[json] DIR/step-000002/COMPLETE: expected JSON, got a mistake at byte 1"},
      {"marker of something else",
       [](const auto& run) { run.put("step-000002/COMPLETE", R"({"format":"x","files":{}})"); },
       "[checkpoint] DIR/step-000002/COMPLETE: 'format' must be octet-complete, got 'x'"},
      {"marker without files",
       [](const auto& run) {
         run.put("step-000002/COMPLETE", R"({"format":"octet-complete","files":{}})");
       },
       "COMPLETE lacks model.safetensors"},
      {"bad digits",
       [](const auto& run) {
         run.put(
             "step-000002/COMPLETE",
             R"({"format":"octet-complete","files":{"manifest.json":{"bytes":1,"xxh64":"12"}}})");
       },
       "[checkpoint] DIR/step-000002/COMPLETE: expected 16 hexadecimal digits, got '12'"},
      {"file gone",
       [](const auto& run) { posix_files().remove(run / "step-000002/optim.safetensors"); },
       "[files] cannot open 'DIR/step-000002/optim.safetensors': No such file or directory"},
      {"file cut", [](const auto& run) { run.put("step-000002/model.safetensors", "12345678"); },
       "[checkpoint] 'DIR/step-000002/model.safetensors': expected 106 bytes, got 8"},
      {"flipped bit",
       [](const auto& run) {
         std::string bytes = posix_files().read_text(run / "step-000002/model.safetensors");
         bytes.back() = static_cast<char>(bytes.back() ^ 1);
         run.put("step-000002/model.safetensors", bytes);
       },
       "[checkpoint] 'DIR/step-000002/model.safetensors': expected xxh64 "},
  };
  for (const auto& [name, damage, warning] : cases) {
    const ScratchFolder run;
    std::vector<std::string> warnings;
    const Log log([&](LogLevel, const std::string& message) {
      warnings.push_back(error_of([&] { throw Error(ErrorCode::io, message); }, run.path()));
    });
    Checkpoints checkpoints(posix_files(), run.path(), log);
    checkpoints.save(Fixture(1).contents, 5);
    checkpoints.save(Fixture(2).contents, 5);
    damage(run);
    const auto loaded = checkpoints.newest();
    ASSERT_TRUE(loaded) << name;
    EXPECT_EQ(text_of(*loaded), Fixture(1).text) << name;
    ASSERT_EQ(warnings.size(), 1u) << name;
    EXPECT_THAT(warnings[0], HasSubstr("[checkpoint] skipping 'DIR/step-000002': " + warning));
  }
}

TEST(Checkpoint, other_names_in_the_folder_are_left_alone) {
  const ScratchFolder run;
  Checkpoints checkpoints(posix_files(), run.path());
  for (const char* name : {"step-1/x", "step-00000x/x", "notes/x", "step-000009"}) {
    run.put(name, "x");
  }
  checkpoints.save(Fixture(3).contents, 1);
  EXPECT_EQ(checkpoints.list().size(), 1u);
  EXPECT_TRUE(posix_files().exists(run / "notes/x"));
  EXPECT_TRUE(posix_files().exists(run / "step-1/x"));
}

TEST(Checkpoint, the_newest_whole_one_is_never_pruned_for_a_damaged_newer_one) {
  const ScratchFolder run;
  Checkpoints checkpoints(posix_files(), run.path());
  checkpoints.save(Fixture(1).contents, 1);
  run.put("step-000009/model.safetensors", "half");
  checkpoints.save(Fixture(2).contents, 1);
  EXPECT_THAT(whole_steps(checkpoints), ElementsAre(2));
  EXPECT_EQ(text_of(*checkpoints.newest()), Fixture(2).text);
  checkpoints.save(Fixture(9).contents, 1);  // a damaged one of the same step gives way
  EXPECT_EQ(text_of(*checkpoints.newest()), Fixture(9).text);
}

// Files of which another process changes something right before the n-th look, counted from 0.
class WatchedFiles : public FaultyFiles {
 public:
  explicit WatchedFiles(std::function<void()> change)
      : FaultyFiles(posix_files()), change_(std::move(change)) {}
  void begin(int64_t at) { at_ = at, n_looks_ = 0; }
  bool is_changed() const { return n_looks_ > at_; }

  std::unique_ptr<FileReader> open(const std::string& path) const override {
    look();
    return FaultyFiles::open(path);
  }
  std::vector<DirectoryEntry> list(const std::string& path) const override {
    look();
    return FaultyFiles::list(path);
  }
  EntryKind kind(const std::string& path) const override {
    look();
    return FaultyFiles::kind(path);
  }
  EntryKind entry_kind(const std::string& path) const override {
    look();
    return FaultyFiles::entry_kind(path);
  }

 private:
  void look() const {
    if (n_looks_++ == at_) change_();
  }
  std::function<void()> change_;
  int64_t at_ = 0;
  mutable std::atomic<int64_t> n_looks_ = 0;
};

// Whose syncs, which take time, do nothing.
FaultyFiles& unsynced() {
  static FaultyFiles files(posix_files());
  return files;
}

// Files of an old checkpoint go one after the other, and then its folder, as remove_checkpoint
// does.
TEST(Checkpoint, one_that_another_process_removes_at_any_look_is_left_out) {
  const std::vector<std::string> files = {"COMPLETE", "model.safetensors", "optim.safetensors",
                                          "manifest.json", ""};
  for (size_t n_removed = 1; n_removed <= files.size(); ++n_removed) {
    bool is_changed = true;
    for (int64_t at = 0; is_changed; ++at) {
      const ScratchFolder run;
      Checkpoints(unsynced(), run.path()).save(Fixture(1).contents, 2);
      Checkpoints(unsynced(), run.path()).save(Fixture(2).contents, 2);
      WatchedFiles watched([&] {
        for (size_t i = 0; i < n_removed; ++i)
          std::filesystem::remove(run / ("step-000001/" + files[i]));
      });
      const Checkpoints checkpoints(watched, run.path());
      watched.begin(at);
      const std::vector<CheckpointEntry> entries = checkpoints.list();
      is_changed = watched.is_changed();
      ASSERT_FALSE(entries.empty());
      EXPECT_EQ(entries.back().step, 2);
      EXPECT_TRUE(entries.back().is_whole()) << entries.back().problem;
      EXPECT_TRUE(entries.front().is_reachable) << at << " " << entries.front().problem;
      Checkpoints(unsynced(), run.path()).save(Fixture(1).contents, 2);
      watched.begin(at);
      EXPECT_EQ(text_of(*checkpoints.newest()), Fixture(2).text);
    }
  }
}

TEST(Checkpoint, the_newest_is_found_while_a_run_saves_another_and_removes_it) {
  bool is_changed = true;
  for (int64_t at = 0; is_changed; ++at) {
    const ScratchFolder run;
    Checkpoints(unsynced(), run.path()).save(Fixture(1).contents, 1);
    WatchedFiles watched([&] { Checkpoints(unsynced(), run.path()).save(Fixture(2).contents, 1); });
    const Checkpoints checkpoints(watched, run.path());
    watched.begin(at);
    const auto newest = checkpoints.newest();
    is_changed = watched.is_changed();
    ASSERT_TRUE(newest) << "look " << at;
    EXPECT_THAT(newest->manifest.step, testing::AnyOf(1, 2));
  }
}

TEST(Checkpoint, folders_that_vanish_are_empty) {
  for (int64_t at = 0; at < 4; ++at) {
    const ScratchFolder run;
    Checkpoints(unsynced(), run / "ckpt").save(Fixture(1).contents, 1);
    WatchedFiles watched([&] { std::filesystem::remove_all(run / "ckpt"); });
    Checkpoints checkpoints(watched, run / "ckpt");
    watched.begin(at);
    EXPECT_TRUE(checkpoints.list().empty()) << at;
    EXPECT_FALSE(checkpoints.newest());
    checkpoints.remove_all();
  }
}

TEST(Checkpoint, what_a_killed_save_left_is_tidied_below_the_one_that_was_loaded) {
  const ScratchFolder run;
  Checkpoints checkpoints(unsynced(), run.path());
  for (const int64_t step : {1, 2, 3, 4, 5, 6, 7}) checkpoints.save(Fixture(step).contents, 9);
  for (const char* name : {"step-000001/COMPLETE", "step-000002/COMPLETE", "step-000007/COMPLETE"})
    std::filesystem::remove(run / name);
  run.put("step-000002/notes", "of the user");
  posix_files().create_directory(run / "step-000008.tmp");
  checkpoints.tidy({2, 3}, checkpoints.newest()->path);
  EXPECT_THAT(whole_steps(checkpoints), ElementsAre(3, 5, 6));
  EXPECT_FALSE(posix_files().exists(run / "step-000001"));
  EXPECT_FALSE(posix_files().exists(run / "step-000008.tmp"));
  EXPECT_TRUE(posix_files().exists(run / "step-000002/notes"));
  EXPECT_TRUE(posix_files().exists(run / "step-000007/model.safetensors"));  // above it
}

// The heart of it: whichever operation of a save fails, once or with all that follow (as when the
// process is killed there), the newest whole checkpoint is the old or the new one, and a later save
// works.
void expect_crash_safety(int64_t old_step, int64_t new_step) {
  const Fixture before(old_step, "old"), after(new_step, "new");
  for (const FaultMode mode : {FaultMode::fail_once, FaultMode::fail_from_then}) {
    bool done = false;
    int64_t n_failures = 0;
    for (int64_t at = 0; !done; ++at) {
      const ScratchFolder run;
      FaultyFiles files(posix_files());
      Checkpoints checkpoints(files, run.path());
      checkpoints.save(before.contents, 1);
      files.set({.at = at, .mode = mode, .error = at % 2 ? EIO : ENOSPC});
      const std::string error = error_of([&] { checkpoints.save(after.contents, 1); });
      done = files.count() <= at;
      files.set({});
      const auto loaded = checkpoints.newest();
      ASSERT_TRUE(loaded) << "operation " << at << ": " << error;
      if (error == "no error") {
        EXPECT_EQ(text_of(*loaded), after.text);
      } else {
        ++n_failures;
        EXPECT_THAT(error,
                    HasSubstr(fmt::format("[checkpoint] step {} was not saved: ", new_step)));
        EXPECT_THAT(error, HasSubstr(at % 2 ? "Input/output error" : "No space left on device"));
        EXPECT_THAT(error, HasSubstr("; the newest whole checkpoint is '"));
        EXPECT_THAT(text_of(*loaded), testing::AnyOf(before.text, after.text));
      }
      checkpoints.save(Fixture(new_step, "later").contents, 1);
      EXPECT_EQ(text_of(*checkpoints.newest()), Fixture(new_step, "later").text);
      EXPECT_EQ(posix_files().list(run.path()).size(), 1u) << "operation " << at;
    }
    EXPECT_GT(n_failures, 20);
  }
}

TEST(Checkpoint, any_failed_operation_leaves_a_whole_checkpoint) {
  expect_crash_safety(1, 2);
}

TEST(Checkpoint, any_failed_operation_in_a_replacement_leaves_a_whole_checkpoint) {
  expect_crash_safety(2, 2);
}

// A disk that loses the second half of a write and says nothing: found by the sizes, before the
// rename.
TEST(Checkpoint, a_short_write_that_reports_success_is_found) {
  for (int64_t at = 0; at < 6; ++at) {
    const ScratchFolder run;
    FaultyFiles files(posix_files());
    Checkpoints checkpoints(files, run.path());
    checkpoints.save(Fixture(1).contents, 1);
    files.set({.at = at, .mode = FaultMode::lose_half, .only = "write"});
    EXPECT_THAT(error_of([&] { checkpoints.save(Fixture(2).contents, 1); }),
                HasSubstr("step 2 was not saved: "));
    EXPECT_EQ(text_of(*checkpoints.newest()), Fixture(1).text);
  }
}

TEST(Checkpoint, a_full_disk_is_told_with_what_is_left) {
  const ScratchFolder run;
  FaultyFiles files(posix_files());
  Checkpoints checkpoints(files, run.path());
  const auto save = [&](int64_t step) {
    return error_of([&] { checkpoints.save(Fixture(step).contents, 1); }, run.path());
  };
  files.set({.at = 0, .only = "write"});
  EXPECT_THAT(save(1),
              MatchesRegex("\\[checkpoint\\] step 1 was not saved: \\[files\\] cannot write "
                           "to 'DIR/step-000001\\.[0-9]+-[0-9a-f]+\\.tmp/"
                           "model\\.safetensors': No space left on device; there is no "
                           "whole checkpoint"));
  EXPECT_TRUE(posix_files().list(run.path()).empty());  // the half-written file gives its room back
  files.set({});
  EXPECT_EQ(save(1), "no error");
  files.set({.at = 0, .error = EIO, .only = "sync"});
  EXPECT_THAT(save(2),
              MatchesRegex("\\[checkpoint\\] step 2 was not saved: \\[files\\] cannot sync "
                           "'DIR/step-000002\\..+\\.tmp/model\\.safetensors': Input/output "
                           "error; the newest whole checkpoint is 'DIR/step-000001'"));
}

TEST(Checkpoint, links_to_checkpoints_are_followed_and_stay) {
  const ScratchFolder run;
  Checkpoints checkpoints(posix_files(), run / "ckpt");
  for (const int64_t step : {1, 2}) checkpoints.save(Fixture(step).contents, 5);
  std::filesystem::create_directory(run / "big");
  for (const char* name : {"step-000001", "step-000002"}) {
    std::filesystem::rename(run / (std::string("ckpt/") + name),
                            run / (std::string("big/") + name));
    std::filesystem::create_symlink(std::string("../big/") + name,
                                    run / (std::string("ckpt/") + name));
  }
  EXPECT_EQ(text_of(*checkpoints.newest()), Fixture(2).text);
  checkpoints.save(Fixture(2, "again").contents, 1);
  checkpoints.save(Fixture(3).contents, 1);
  EXPECT_EQ(text_of(*checkpoints.newest()), Fixture(3).text);
  for (const int64_t step : {1, 2}) {
    EXPECT_EQ(text_of(checkpoints.load(run / fmt::format("big/step-{:06}", step))),
              Fixture(step).text);
  }
}

TEST(Checkpoint, one_that_cannot_be_reached_ends_the_search_for_the_newest) {
  const ScratchFolder run;
  Checkpoints checkpoints(posix_files(), run.path());
  checkpoints.save(Fixture(1).contents, 5);
  std::filesystem::create_symlink("/mnt/none/step-000002", run / "step-000002");
  EXPECT_EQ(error_of([&] { checkpoints.newest(); }, run.path()),
            "[checkpoint] cannot tell what is in 'DIR/step-000002': [files] cannot inspect "
            "'DIR/step-000002': a link to '/mnt/none/step-000002', which is not there");
  checkpoints.save(Fixture(3).contents, 5);  // a newer one makes it needless
  EXPECT_EQ(text_of(*checkpoints.newest()), Fixture(3).text);
  EXPECT_EQ(posix_files().entry_kind(run / "step-000002"), EntryKind::link);
}

// A folder that cannot be opened: nobody can tell what is in it.
class LockedFolder : public FaultyFiles {
 public:
  LockedFolder(Files& under, std::string locked) : FaultyFiles(under), locked_(std::move(locked)) {}
  EntryKind kind(const std::string& path) const override {
    if (parent_path(path) == locked_) throw_io_error("inspect", path, EACCES);
    return FaultyFiles::kind(path);
  }

 private:
  std::string locked_;
};

TEST(Checkpoint, one_of_another_user_is_not_taken_for_missing) {
  const ScratchFolder run;
  LockedFolder files(posix_files(), run / "step-000002");
  Checkpoints checkpoints(files, run.path());
  for (const int64_t step : {1, 2}) {
    Checkpoints(posix_files(), run.path()).save(Fixture(step).contents, 5);
  }
  EXPECT_EQ(error_of([&] { checkpoints.newest(); }, run.path()),
            "[checkpoint] cannot tell what is in 'DIR/step-000002': [files] cannot inspect "
            "'DIR/step-000002/COMPLETE': Permission denied");
  checkpoints.save(Fixture(3).contents, 1);  // nor pruned
  EXPECT_EQ(text_of(Checkpoints(posix_files(), "").load(run / "step-000002")), Fixture(2).text);
}

TEST(Checkpoint, a_fifo_in_the_place_of_a_file_is_damage) {
  for (const char* name : {"COMPLETE", "manifest.json", "model.safetensors"}) {
    const ScratchFolder run;
    Checkpoints checkpoints(posix_files(), run.path());
    for (const int64_t step : {1, 2}) checkpoints.save(Fixture(step).contents, 5);
    const std::string file = run / (std::string("step-000002/") + name);
    posix_files().remove(file);
    ASSERT_EQ(::mkfifo(file.c_str(), 0600), 0);
    EXPECT_EQ(text_of(*checkpoints.newest()), Fixture(1).text) << name;
  }
}

TEST(Checkpoint, what_a_user_put_there_outlives_pruning_and_replacing) {
  const ScratchFolder run;
  Checkpoints checkpoints(posix_files(), run.path());
  run.put("backup.tmp/weights", "mine");
  run.put("step-000001.tmp/model.safetensors", "of an earlier version");
  run.put("step-000001.1-0123abcd.tmp/model.safetensors", "of a living process");
  for (const int64_t step : {1, 2}) checkpoints.save(Fixture(step).contents, 5);
  run.put("step-000001/notes", "mine");
  run.put("step-000002/notes", "mine as well");
  run.put("step-000002/COMPLETE", "damaged");
  checkpoints.save(Fixture(2, "new").contents, 1);
  EXPECT_THAT(whole_steps(checkpoints), ElementsAre(2));
  std::vector<std::string> texts;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(run.path())) {
    const std::string name = entry.path().filename();
    if (name == "notes" || name == "weights") {
      texts.push_back(posix_files().read_text(entry.path().string()));
    }
  }
  EXPECT_THAT(texts, testing::UnorderedElementsAre("mine", "mine", "mine as well"));
  EXPECT_FALSE(posix_files().exists(run / "step-000001.tmp"));
  if (::getpid() != 1) {
    EXPECT_TRUE(posix_files().exists(run / "step-000001.1-0123abcd.tmp"));
  }
}

TEST(Checkpoint, failing_to_prune_is_a_warning) {
  const ScratchFolder run;
  FaultyFiles files(posix_files());
  std::vector<std::string> warnings;
  Checkpoints checkpoints(files, run.path(), Log([&](LogLevel, const std::string& message) {
                            warnings.push_back(message);
                          }));
  checkpoints.save(Fixture(1).contents, 1);
  files.set({.at = 0, .error = EACCES, .only = "remove"});
  checkpoints.save(Fixture(2).contents, 1);
  ASSERT_EQ(warnings.size(), 1u);
  EXPECT_THAT(warnings[0], HasSubstr("[checkpoint] old checkpoints stay: [files] cannot remove"));
  EXPECT_THAT(whole_steps(checkpoints), ElementsAre(1, 2));
}

TEST(Checkpoint, a_manifest_that_does_not_fit_the_tensors_is_refused) {
  const ScratchFolder run;
  Checkpoints checkpoints(posix_files(), run.path());
  const auto with_manifest = [&](const std::string& from, const std::string& to) {
    checkpoints.save(Fixture(1).contents, 1);
    const std::string folder = run / "step-000001";
    std::string text = posix_files().read_text(folder + "/manifest.json");
    text.replace(text.find(from), from.size(), to);
    Marker marker = parse_marker(posix_files().read_text(folder + "/COMPLETE"), "COMPLETE");
    posix_files().remove(folder + "/manifest.json");
    marker["manifest.json"] = write_marked(posix_files(), folder + "/manifest.json",
                                           [&](FileWriter& out) { out.write(as_bytes(text)); });
    run.put("step-000001/COMPLETE", marker_to_json(marker));
    return error_of([&] { checkpoints.load(folder); }, run.path());
  };
  EXPECT_EQ(with_manifest("\"hif8\"", "\"u8\""),
            "[checkpoint] DIR/step-000001/optim.safetensors: 'w.m' must be u8, got hif8");
  EXPECT_EQ(with_manifest("\"w.m\": \"hif8\"", ""),
            "[checkpoint] DIR/step-000001/optim.safetensors: expected 0 tensors, got 1");
  EXPECT_EQ(
      with_manifest("\"w\": \"u8\"", "\"v\": \"u8\""),
      "[safetensors] DIR/step-000001/model.safetensors: expected tensor 'v', got none of this "
      "name");
  EXPECT_EQ(with_manifest("\"coat\"", "\"coat\", \"later\": [1]"), "no error");
}

// tests/unit/io/checkpoint-1.0 was written by format version 1.0 and is never written again.
TEST(Checkpoint, the_golden_checkpoint_of_version_1_0_is_read) {
  const std::string folder = std::string(OCTET_SOURCE_DIR) + "/tests/unit/io/checkpoint-1.0";
  const auto loaded = Checkpoints(posix_files(), folder).newest();
  ASSERT_TRUE(loaded);
  EXPECT_EQ(loaded->manifest.step, 40);
  EXPECT_EQ(loaded->manifest.tokens, 10'240);
  EXPECT_EQ(loaded->manifest.loader.at("position"), "4");
  EXPECT_EQ(as_string(loaded->model.read("model.norm.weight")), "0123456789abcdef");
  EXPECT_EQ(loaded->optim.at("model.norm.weight.exp_avg").dtype, Dtype::e4m3);
  EXPECT_EQ(loaded->optim.at("model.norm.weight.exp_avg_sq").dtype, Dtype::hif8);
  EXPECT_EQ(as_string(loaded->optim.read("model.norm.weight.exp_avg_sq")), "GHIJ");
}

// Fields that a reader of version 1.0 asks for have the same keys and kinds: it goes on with such a
// checkpoint, without the checks that came with 1.1.
TEST(Manifest, of_this_version_reads_as_1_0_too) {
  const Json json = Json::parse(manifest_to_json(Fixture(3).contents.manifest));
  EXPECT_EQ(json.at("format"), "octet-checkpoint");
  EXPECT_EQ(json.at("version").at("major"), 1);
  for (const char* key : {"step", "attempted", "skipped", "tokens", "seed"}) {
    EXPECT_TRUE(json.at(key).is_number_unsigned()) << key;
  }
  for (const char* key : {"loader", "extra"}) {
    for (const auto& value : json.at(key)) EXPECT_TRUE(value.is_string()) << key;
  }
  for (const char* key : {"model", "optim"}) EXPECT_TRUE(json.at("tensors").at(key).is_object());
}

TEST(Manifest, of_version_1_0_is_written_again_as_it_was) {
  const std::string path =
      std::string(OCTET_SOURCE_DIR) + "/tests/unit/io/checkpoint-1.0/step-000040/manifest.json";
  const std::string text = posix_files().read_text(path);
  EXPECT_EQ(manifest_to_json(parse_manifest(text, path)), text);
}

TEST(Manifest, later_minor_versions_are_read_and_other_majors_refused) {
  const std::string text = manifest_to_json(Fixture(3).contents.manifest);
  const auto changed = [&](const std::string& from, const std::string& to) {
    std::string other = text;
    other.replace(other.find(from), from.size(), to);
    return error_of([&] { parse_manifest(other, "m"); });
  };
  EXPECT_EQ(changed("\"minor\": 1", "\"minor\": 9, \"more\": {}"), "no error");
  EXPECT_EQ(changed("\"major\": 1", "\"major\": 2"),
            "[manifest] m: expected format version 1.x, got 2.1");
  EXPECT_EQ(changed("\"skipped\": 1", "\"skipped\": 5"),
            "[manifest] m: 'skipped' must be at most 'attempted' = 4, got 5");
  EXPECT_EQ(changed("\"model.heads\": \"4\"", "\"model.heads\": \"8\""),
            fmt::format("[manifest] m: 'config_hash' must be {} for 'config', got {}",
                        config_hash({{"model.heads", "8"}}), config_hash({{"model.heads", "4"}})));
  EXPECT_EQ(changed("\"uses\"", "\"users\""), "[json] m: expected key 'uses', got none");
  EXPECT_EQ(changed("octet-checkpoint", "other"),
            "[manifest] m: 'format' must be octet-checkpoint, got 'other'");
  EXPECT_EQ(changed("\"step\": 3", "\"step\": -3"),
            "[manifest] m: 'step' must be 0 or more, got -3");
  EXPECT_EQ(changed("\"step\"", "\"stop\""), "[json] m: expected key 'step', got none");
  EXPECT_EQ(changed("\"7\"", "7"), "[json] m: 'position' must be a string, got 7");
  EXPECT_EQ(changed("18446744073709551615", "-1"),
            "[json] m: 'seed' must be an integer of 0 or more, got -1");
}

}  // namespace
}  // namespace octet::io_checkpoint_test
