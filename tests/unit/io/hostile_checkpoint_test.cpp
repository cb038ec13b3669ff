// Checkpoints that somebody made to mislead, and machines that are short of what reading one takes:
// the older checkpoint is found all the same.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <new>
#include <system_error>

#include "io/checkpoint.h"
#include "io/checkpoint_marker.h"
#include "io/model_files.h"
#include "unit/base/error_of.h"
#include "unit/base/faulty_files.h"
#include "unit/base/scratch_folder.h"

namespace octet::io_hostile_checkpoint_test {
namespace {

using test::error_of;
using test::ScratchFolder;
using testing::ElementsAre;
using testing::HasSubstr;

// Two whole checkpoints, and the warnings of whoever looks for the newest.
class Hostile : public testing::Test {
 protected:
  Hostile() {
    for (const int64_t step : {1, 2}) save(step);
  }

  void save(int64_t step) {
    const std::string text = fmt::format("{:08}", step);
    CheckpointContents contents;
    contents.manifest = {.step = step, .attempted = step, .recipe = "coat"};
    contents.model = {span_source(tensor_decl("w", Dtype::u8, {8}), as_bytes(text))};
    contents.optim = {span_source(tensor_decl("w.m", Dtype::u8, {8}), as_bytes(text))};
    Checkpoints(posix_files(), run_.path()).save(contents, 9);
  }

  int64_t newest_step(const Files& files = posix_files()) {
    warnings_.clear();
    const Log log([&](LogLevel, const std::string& message) {
      warnings_.push_back(error_of([&] { throw Error(ErrorCode::io, message); }, run_.path()));
    });
    const auto newest = Checkpoints(const_cast<Files&>(files), run_.path(), log).newest();
    return newest ? newest->manifest.step : 0;
  }

  ScratchFolder run_;
  std::vector<std::string> warnings_;
};

TEST_F(Hostile, a_marker_names_files_of_a_checkpoint_alone) {
  Marker marker = parse_marker(posix_files().read_text(run_ / "step-000002/COMPLETE"), "COMPLETE");
  for (const char* name : {"../step-000001/manifest.json", "/etc/passwd", "more.safetensors"}) {
    Marker more = marker;
    more[name] = {};
    run_.put("step-000002/COMPLETE", marker_to_json(more));
    EXPECT_EQ(newest_step(), 1);
    EXPECT_THAT(warnings_, ElementsAre(fmt::format(
                               "[checkpoint] skipping 'DIR/step-000002': [checkpoint] "
                               "DIR/step-000002/COMPLETE: expected files of a checkpoint, got '{}'",
                               name)));
  }
  for (int i = 0; i < 1800; ++i) marker[fmt::format("x{}", i)] = {};
  run_.put("step-000002/COMPLETE", marker_to_json(marker));
  EXPECT_EQ(newest_step(), 1);
}

TEST_F(Hostile, a_marker_of_a_tebibyte_is_not_read) {
  std::filesystem::resize_file(run_ / "step-000002/COMPLETE", uint64_t{1} << 40);
  EXPECT_EQ(newest_step(), 1);
  EXPECT_THAT(warnings_, ElementsAre(HasSubstr("expected at most 65536 bytes, got 1099511627776")));
}

TEST_F(Hostile, a_folder_under_another_number_is_not_the_newest) {
  posix_files().rename(run_ / "step-000001", run_ / "step-000900");
  EXPECT_EQ(newest_step(), 2);
  EXPECT_THAT(warnings_,
              ElementsAre("[checkpoint] skipping 'DIR/step-000900': [checkpoint] "
                          "'DIR/step-000900': expected step 900 as its name says, got step 1"));
  save(3);  // nor does it count among those that are kept
  EXPECT_EQ(newest_step(), 3);
}

// Opening the newest checkpoint's files meets another exception than Error.
template <typename Thrown>
class FailingFiles : public test::FaultyFiles {
 public:
  FailingFiles(std::string name, Thrown thrown)
      : FaultyFiles(posix_files()), name_(std::move(name)), thrown_(std::move(thrown)) {}
  std::unique_ptr<FileReader> open(const std::string& path) const override {
    if (path.ends_with("step-000002/" + name_) && ++n_opened_ > 1) throw thrown_;
    return FaultyFiles::open(path);
  }

 private:
  std::string name_;
  Thrown thrown_;
  mutable std::atomic<int> n_opened_ = 0;  // the first time it is asked for its size
};

TEST_F(Hostile, any_exception_of_one_checkpoint_leads_to_the_older_one) {
  const std::system_error no_thread(EAGAIN, std::generic_category());
  for (const char* name : {"model.safetensors", "optim.safetensors", "manifest.json"}) {
    EXPECT_EQ(newest_step(FailingFiles(name, no_thread)), 1) << name;
    EXPECT_THAT(warnings_,
                ElementsAre(HasSubstr("skipping 'DIR/step-000002': [checkpoint] cannot read")));
    EXPECT_EQ(newest_step(FailingFiles(name, std::bad_alloc())), 1) << name;
    EXPECT_THAT(warnings_, ElementsAre(HasSubstr("out of memory while it was read")));
  }
}

TEST(HostileIndex, names_with_a_nul_are_refused) {
  const ScratchFolder folder;
  folder.put("model.safetensors.index.json", R"({"weight_map":{"a":"x.safetensors\u0000y"}})");
  EXPECT_EQ(error_of([&] { ModelFiles::open(posix_files(), folder.path()); }, folder.path()),
            "[model] DIR/model.safetensors.index.json: expected a file of the same folder, got "
            "'x.safetensors'");
}

}  // namespace
}  // namespace octet::io_hostile_checkpoint_test
