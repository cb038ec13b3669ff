// A quantization that was ended goes on with the same weights, text and options alone.
#include <gtest/gtest.h>

#include "unit/base/error_of.h"
#include "unit/ptq/tiny_model.h"

namespace octet::ptq_resume_test {
namespace {

using test::ScratchFolder;

struct Ended {};

class PtqResume : public testing::Test {
 protected:
  void SetUp() override { test::put_tiny_model(folder_, spec_); }

  void quantize(const std::string& from, const std::string& to, PtqStart start = PtqStart::go_on) {
    const ModelSource source = find_model_source(posix_files(), from);
    PtqHooks hooks{.log = Log([&](LogLevel, const std::string& line) { said_ += line + "\n"; })};
    if (ends_)
      hooks.on_site = [](size_t i, size_t, const std::string&) {
        if (i == 2) throw Ended();
      };
    quantize_model(
        posix_files(),
        {.source = source, .options = checked(options_), .out = to, .rows = rows_, .start = start},
        backend_, hooks);
  }
  // Ends after three sites.
  void begin(const std::string& out) {
    ends_ = true;
    EXPECT_THROW(quantize(folder_.path(), folder_ / out), Ended);
    ends_ = false;
  }
  std::string error_of_going_on(const std::string& out) {
    return test::error_of([&] { quantize(folder_.path(), folder_ / out); }, folder_.path());
  }
  std::vector<std::byte> weights(const std::string& out) const {
    return posix_files().read_bytes(folder_ / (out + "/model.safetensors"));
  }

  const ModelSpec spec_ = test::tiny_spec(ModelKind::llama);
  ScratchFolder folder_;
  std::vector<Batch> rows_ = test::tiny_rows(spec_, 4, 16);
  PtqOptions options_{.format = PtqFormat::e4m3, .method = PtqMethod::max};
  Backend backend_ = cpu::make_backend(2, cpu::detect_isa());
  bool ends_ = false;
  std::string said_;
};

const std::string kBegun =
    "[ptq] --out: expected the quantization begun before in 'DIR/out', or --overwrite to begin "
    "anew, got ";

TEST_F(PtqResume, with_other_weights_of_the_same_name_is_refused_or_begun_anew) {
  begin("out");
  test::put_tiny_model(folder_, spec_, 8);
  const std::string error = error_of_going_on("out");
  EXPECT_EQ(error.find(kBegun + "weights_hash "), 0u) << error;
  EXPECT_EQ(error.find(", got "), error.rfind(", ")) << error;  // nothing else differs
  quantize(folder_.path(), folder_ / "out", PtqStart::begin_anew);
  quantize(folder_.path(), folder_ / "fresh");
  EXPECT_EQ(weights("out"), weights("fresh"));
  EXPECT_EQ(said_.find("were done before"), std::string::npos) << said_;
  EXPECT_FALSE(posix_files().exists(folder_ / "out/ptq-progress"));
}

TEST_F(PtqResume, with_rows_of_another_length_is_refused) {
  begin("out");
  Batch& batch = rows_.front();  // the same tokens
  batch.batch = 8, batch.seq = 8;
  EXPECT_EQ(error_of_going_on("out"), kBegun + "rows 8 (begun with 4), seq 8 (begun with 16)");
}

TEST_F(PtqResume, with_other_tokens_or_options_is_refused_by_what_differs) {
  begin("out");
  rows_.front().ints("tokens")[5] ^= 1;
  const std::string error = error_of_going_on("out");
  EXPECT_EQ(error.find(kBegun + "tokens_hash "), 0u) << error;
  rows_.front().ints("tokens")[5] ^= 1;
  options_ = {.format = PtqFormat::int8, .method = PtqMethod::max, .percentile = 99};
  EXPECT_EQ(error_of_going_on("out"), kBegun +
                                          "format \"int8\" (begun with \"e4m3\"), percentile 99.0 "
                                          "(begun with 99.99)");
}

TEST_F(PtqResume, of_what_says_less_of_itself_is_refused) {
  begin("out");
  folder_.put("out/ptq-progress/identity.json", R"({"format": "e4m3", "searched": "all rows"})");
  const std::string error = error_of_going_on("out");
  EXPECT_NE(error.find("weights_hash "), std::string::npos) << error;
  EXPECT_NE(error.find("(begun with none)"), std::string::npos) << error;
  EXPECT_NE(error.find("no searched"), std::string::npos) << error;
  folder_.put("out/ptq-progress/identity.json", "{damaged");
  EXPECT_NE(error_of_going_on("out").find("(begun with none)"), std::string::npos);
  quantize(folder_.path(), folder_ / "out", PtqStart::begin_anew);
}

TEST_F(PtqResume, goes_on_with_a_copy_of_the_model) {
  begin("out");
  const ScratchFolder copy;
  test::put_tiny_model(copy, spec_);
  quantize(copy.path(), folder_ / "out");
  EXPECT_NE(said_.find("3 of 8 sites were done before"), std::string::npos) << said_;
}

TEST_F(PtqResume, begins_nothing_anew_in_a_folder_that_it_did_not_begin) {
  folder_.put("out/notes.txt", "mine");
  EXPECT_EQ(test::error_of([&] { quantize(folder_.path(), folder_ / "out", PtqStart::begin_anew); },
                           folder_.path()),
            "[ptq] --out: expected a free name or an empty folder, got 'DIR/out' with files");
  begin("other");
  folder_.put("other/notes.txt", "mine");
  folder_.put("other/model-00001-of-00002.safetensors", "half written");
  quantize(folder_.path(), folder_ / "other", PtqStart::begin_anew);
  EXPECT_TRUE(posix_files().exists(folder_ / "other/notes.txt"));
  EXPECT_FALSE(posix_files().exists(folder_ / "other/model-00001-of-00002.safetensors"));
}

}  // namespace
}  // namespace octet::ptq_resume_test
