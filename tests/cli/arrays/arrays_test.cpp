// Runs whose data is arrays in files.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cli/program_run.h"
#include "cli/train/tiny_run.h"
#include "unit/infer/put_arrays.h"

namespace octet::arrays_test {
namespace {

using test::checkpoint_bytes;
using test::easy_text;
using test::loss_bits;
using test::Outcome;
using test::run_program;
using test::ScratchFolder;
using test::val_losses;
using testing::HasSubstr;

constexpr int64_t kSeq = 24;

// The windows of a text, as a run reads them.
std::string put_windows(const std::string& path, const std::string& text) {
  std::vector<uint8_t> tokens;
  std::vector<int16_t> labels;
  for (size_t i = 0; i + 1 < text.size(); ++i) {
    tokens.push_back(static_cast<uint8_t>(text[i]));
    labels.push_back(static_cast<uint8_t>(text[i + 1]));
  }
  const int64_t n_rows = std::ssize(tokens) / kSeq;
  tokens.resize(static_cast<size_t>(n_rows * kSeq));
  labels.resize(tokens.size());
  return test::put_arrays(path, {test::array_of("tokens", SafeDtype::u8, {n_rows, kSeq}, tokens),
                                 test::array_of("labels", SafeDtype::i16, {n_rows, kSeq}, labels)});
}

std::string tiny_file(const ScratchFolder& folder) {
  return folder.put("tiny.yaml", test::tiny_yaml(folder));
}

Outcome train(const ScratchFolder& folder, const std::string& arguments) {
  return run_program(folder, "train " + tiny_file(folder) + " --quiet " + arguments);
}

TEST(Arrays, windows_of_a_text_train_to_the_bits_of_the_text) {
  const ScratchFolder folder;
  const std::string text = easy_text(24 * 80 + 1), val = easy_text(24 * 20 + 1);
  const std::string common =
      "--set data.val_fraction=0 --set data.sampling=sequential --set train.eval_bytes=96 ";
  const Outcome of_text = train(folder, common + "--set data.train=[" + folder.put("a.txt", text) +
                                            "] --set data.val=[" + folder.put("v.txt", val) +
                                            "] --set out=" + (folder / "text"));
  ASSERT_EQ(of_text.code, 0) << of_text.err;
  // A row of arrays takes 24 x (1 + 2) bytes, 4 of them as many as 96 of text.
  const Outcome of_arrays =
      train(folder, common + "--set train.eval_bytes=288 --set data.train=[" +
                        put_windows(folder / "a.safetensors", text) + "] --set data.val=[" +
                        put_windows(folder / "v.safetensors", val) +
                        "] --set out=" + (folder / "arrays"));
  ASSERT_EQ(of_arrays.code, 0) << of_arrays.err;
  EXPECT_EQ(loss_bits(folder / "arrays"), loss_bits(folder / "text"));
  EXPECT_EQ(checkpoint_bytes(folder / "arrays", 6), checkpoint_bytes(folder / "text", 6));
}

TEST(Arrays, a_run_that_goes_on_comes_to_the_bits_of_one_that_was_not_stopped) {
  const ScratchFolder folder;
  const std::string data = " --set optim.schedule=constant --set data.train=[" +
                           put_windows(folder / "a.safetensors", easy_text(24 * 7 + 1)) + "]";
  ASSERT_EQ(train(folder, "--set train.steps=9 --set out=" + (folder / "whole") + data).code, 0);
  ASSERT_EQ(train(folder, "--set train.steps=5 --set out=" + (folder / "parts") + data).code, 0);
  const Outcome resumed =
      train(folder, "--resume --set train.steps=9 --set out=" + (folder / "parts") + data);
  ASSERT_EQ(resumed.code, 0) << resumed.err;
  EXPECT_EQ(loss_bits(folder / "parts"), loss_bits(folder / "whole"));
  EXPECT_EQ(checkpoint_bytes(folder / "parts", 9), checkpoint_bytes(folder / "whole", 9));
  const Outcome other =
      train(folder, "--resume --set train.steps=12 --set out=" + (folder / "parts") +
                        " --set optim.schedule=constant --set data.train=[" +
                        put_windows(folder / "b.safetensors", easy_text(24 * 9 + 1)) + "]");
  EXPECT_EQ(other.code, 3);
  EXPECT_THAT(other.err, HasSubstr("the training data changed: expected 6 samples of content"));
}

TEST(Arrays, the_last_rows_are_held_out_and_evaluated) {
  const ScratchFolder folder;
  const std::string path = put_windows(folder / "a.safetensors", easy_text(24 * 40 + 1));
  const Outcome outcome =
      run_program(folder, "train " + tiny_file(folder) + " --set data.train=[" + path + "]");
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_THAT(outcome.err, HasSubstr("36 training and 4 validation samples"));
  const std::vector<double> losses = val_losses(folder / "run");
  ASSERT_EQ(losses.size(), 3u);
  EXPECT_LT(losses.back(), losses.front());
}

TEST(Arrays, two_ranks_read_the_rows_that_one_reads) {
  const ScratchFolder folder;
  const std::string data =
      " --set data.train=[" + put_windows(folder / "a.safetensors", easy_text(24 * 40 + 1)) + "]";
  ASSERT_EQ(train(folder, "--set train.batch=4 --set out=" + (folder / "one") + data).code, 0);
  const Outcome two =
      train(folder, "--ranks 2 --set parallel.reduce=f32 --set out=" + (folder / "two") + data);
  ASSERT_EQ(two.code, 0) << two.err;
  const auto one_rank = test::metrics(folder / "one"), two_ranks = test::metrics(folder / "two");
  ASSERT_EQ(one_rank.size(), two_ranks.size());
  for (size_t i = 0; i < one_rank.size(); ++i) {
    EXPECT_NEAR(one_rank[i].at("loss").get<double>(), two_ranks[i].at("loss").get<double>(), 1e-4);
    EXPECT_EQ(one_rank[i].at("tokens"), two_ranks[i].at("tokens"));
  }
}

// Pairs of rows: the loss says what the data holds, and how many rows belong together.
TEST(Arrays, losses_say_which_arrays_a_run_reads) {
  const ScratchFolder folder;
  constexpr int64_t kRows = 32;
  std::vector<uint8_t> tokens;
  std::vector<int16_t> labels;
  for (int64_t i = 0; i < kRows * kSeq; ++i) {
    const int64_t row = i / kSeq, step = row % 2 == 0 ? 1 : 7;  // of a pair the first is preferred
    tokens.push_back(static_cast<uint8_t>(64 + (row + step * i) % 32));
    labels.push_back(static_cast<int16_t>(64 + (row + step * (i + 1)) % 32));
  }
  const std::vector<float> reference(kRows, 80.0f);
  const auto array_tokens = test::array_of("tokens", SafeDtype::u8, {kRows, kSeq}, tokens),
             array_labels = test::array_of("labels", SafeDtype::i16, {kRows, kSeq}, labels);
  const std::string whole =
      test::put_arrays(folder / "whole.safetensors",
                       {array_tokens, array_labels,
                        test::array_of("reference_nll", SafeDtype::f32, {kRows}, reference)});
  const std::string without =
      test::put_arrays(folder / "without.safetensors", {array_tokens, array_labels});
  const std::string common = "--set train.loss=pairwise --set train.batch=4 --set train.steps=12 ";
  const Outcome trained = train(folder, common + "--set data.train=[" + whole + "]");
  ASSERT_EQ(trained.code, 0) << trained.err;
  const auto steps = test::metrics(folder / "run");
  EXPECT_LT(steps.back().at("loss").get<double>(), 0.6);  // log 2 where nothing is known
  EXPECT_GT(steps.front().at("loss").get<double>(), 0.6);
  const Outcome failed = train(folder, common + "--overwrite --set data.train=[" + without + "]");
  EXPECT_EQ(failed.code, 3);
  EXPECT_THAT(failed.err, HasSubstr("expected an array 'reference_nll', got"));
}

TEST(Arrays, inspection_tells_what_a_sample_holds) {
  const ScratchFolder folder;
  const std::string command =
      "data inspect " + tiny_file(folder) + " --n 1 --set data.train=[" +
      put_windows(folder / "a.safetensors", "abcdefghijklmnopqrstuvwxyz" + easy_text(24 * 39)) +
      "]";
  const Outcome text = run_program(folder, command);
  ASSERT_EQ(text.code, 0) << text.err;
  EXPECT_EQ(text.out,
            "samples        36 training, 4 validation, 72 bytes each\n"
            "tokens         integers a token, below 256\n"
            "labels         integers a token, below 256\n"
            "\n--- sample 0\n"
            "tokens         97 98 99 100 101 102 103 104 105 106 107 108 109 110 111 112 ...\n"
            "labels         98 99 100 101 102 103 104 105 106 107 108 109 110 111 112 113 ...\n");
  const auto json = nlohmann::json::parse(run_program(folder, command + " --json").out);
  EXPECT_EQ(json.at("samples"), 36);
  EXPECT_EQ(json.at("first").at(0).at("labels").at(23), 'y');
}

TEST(Arrays, what_does_not_fit_ends_before_the_first_step) {
  const ScratchFolder folder;
  const std::string path = put_windows(folder / "a.safetensors", easy_text(24 * 40 + 1));
  const auto error = [&](const std::string& arguments) {
    const Outcome outcome = train(folder, arguments);
    EXPECT_NE(outcome.code, 0);
    EXPECT_FALSE(posix_files().exists(folder / "run/metrics.jsonl"));
    return outcome.err;
  };
  EXPECT_THAT(error("--set model.seq=20 --set data.train=[" + path + "]"),
              HasSubstr("'tokens': expected [rows, 20], got [40, 24]"));
  EXPECT_THAT(error("--set data.train=[" + path + "," + (folder / "text.txt") + "]"),
              HasSubstr("expected .safetensors as beside it, got other data"));
  EXPECT_THAT(error("--set 'data.train=[{path: " + path + ", weight: 2}]'"),
              HasSubstr("data.train.weight: expected none with arrays, pictures or an encoder's "
                        "text, got weights"));
  EXPECT_THAT(
      error("--set data.pack=true --set data.train=[" + path + "]"),
      HasSubstr("data.pack: expected none with arrays, pictures or an encoder's text, got true"));
}

}  // namespace
}  // namespace octet::arrays_test
