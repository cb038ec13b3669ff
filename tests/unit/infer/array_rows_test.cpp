#include "infer/array_rows.h"

#include <fmt/ranges.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <utility>

#include "data/row_plan.h"
#include "unit/base/error_of.h"
#include "unit/base/scratch_folder.h"
#include "unit/infer/put_arrays.h"

namespace octet::infer_array_rows_test {
namespace {

using test::array_of;
using test::ArrayToPut;
using test::put_arrays;
using test::ScratchFolder;
using testing::ElementsAre;

const InputSpec kTokens = {.name = "tokens", .bound = 9};
const InputSpec kLabels = {.name = "labels", .fill = Fill::ignored, .bound = 9};
const InputSpec kFrames = {.name = "frames", .per = Per::row, .inner = {4}, .type = HostType::real};
const InputSpec kRank = {.name = "rank", .per = Per::sample};

std::string error(const ScratchFolder& folder, const std::vector<ArrayToPut>& arrays,
                  const ArrayRowsOptions& options) {
  const std::string path = put_arrays(folder / "a.safetensors", arrays);
  return test::error_of([&] { array_rows(posix_files(), {path}, options); }, folder.path());
}

TEST(ArrayRows, rows_come_as_they_lie_in_the_file) {
  const ScratchFolder folder;
  const std::string path =
      put_arrays(folder / "a.safetensors",
                 {array_of<int32_t>("tokens", SafeDtype::i32, {3, 2}, {1, 2, 3, 4, 5, 6}),
                  array_of<int64_t>("labels", SafeDtype::i64, {3, 2}, {2, -1, 4, 5, -1, -1}),
                  array_of<float>("frames", SafeDtype::f32, {3, 2, 2},
                                  {0, 1, 2, 3, 10, 11, 12, 13, 20, 21, 22, 23}),
                  array_of<float>("unread", SafeDtype::f32, {1}, {0})});
  const auto rows =
      array_rows(posix_files(), {path}, {.inputs = {kTokens, kLabels, kFrames}, .seq = 2});
  ASSERT_EQ(rows->n_samples(), 3);
  EXPECT_EQ(rows->sample_bytes(), 2 * 4 + 2 * 8 + 4 * 4);
  EXPECT_EQ(rows->n_counted(0, {}, kLabels), 1);
  EXPECT_EQ(rows->n_counted(1, {}, kLabels), 2);
  EXPECT_EQ(rows->n_counted(2, {}, kLabels), 0);
  const Batch batch = SampleEval(rows, {.seq = 2}).at(1, 2);
  EXPECT_THAT(batch.ints("tokens"), ElementsAre(3, 4, 5, 6));
  EXPECT_THAT(batch.ints("labels"), ElementsAre(4, 5, -1, -1));
  EXPECT_THAT(batch.reals("frames"), ElementsAre(10, 11, 12, 13, 20, 21, 22, 23));
  EXPECT_TRUE(batch.lengths.empty());
}

TEST(ArrayRows, integers_and_numbers_of_each_type_are_read) {
  const ScratchFolder folder;
  const ArrayToPut indices[] = {array_of<int64_t>("tokens", SafeDtype::i64, {2, 2}, {1, 2, 3, 8}),
                                array_of<int32_t>("tokens", SafeDtype::i32, {2, 2}, {1, 2, 3, 8}),
                                array_of<int16_t>("tokens", SafeDtype::i16, {2, 2}, {1, 2, 3, 8}),
                                array_of<uint16_t>("tokens", SafeDtype::u16, {2, 2}, {1, 2, 3, 8}),
                                array_of<uint32_t>("tokens", SafeDtype::u32, {2, 2}, {1, 2, 3, 8}),
                                array_of<uint8_t>("tokens", SafeDtype::u8, {2, 2}, {1, 2, 3, 8}),
                                array_of<int8_t>("tokens", SafeDtype::i8, {2, 2}, {1, 2, 3, 8})};
  const ArrayToPut numbers[] = {
      array_of<float>("frames", SafeDtype::f32, {2, 4}, {1, -2, 0.5f, 0, 1, 1, 1, 1}),
      array_of<uint16_t>("frames", SafeDtype::bf16, {2, 4},
                         {0x3F80, 0xC000, 0x3F00, 0, 0x3F80, 0x3F80, 0x3F80, 0x3F80}),
      array_of<uint16_t>("frames", SafeDtype::f16, {2, 4},
                         {0x3C00, 0xC000, 0x3800, 0, 0x3C00, 0x3C00, 0x3C00, 0x3C00})};
  const auto check = [&](const ArrayToPut& tokens, const ArrayToPut& frames) {
    const std::string path = put_arrays(folder / "a.safetensors", {tokens, frames});
    const auto rows = array_rows(posix_files(), {path}, {.inputs = {kTokens, kFrames}, .seq = 2});
    const Batch batch = SampleEval(rows, {.seq = 2}).at(0, 2);
    EXPECT_THAT(batch.ints("tokens"), ElementsAre(1, 2, 3, 8));
    EXPECT_THAT(batch.reals("frames"), ElementsAre(1, -2, 0.5f, 0, 1, 1, 1, 1));
  };
  for (const ArrayToPut& tokens : indices) check(tokens, numbers[0]);
  for (const ArrayToPut& frames : numbers) check(indices[0], frames);
}

// Counted as by a loss, of what its array holds.
TEST(ArrayRows, targets_that_are_numbers_count_unless_they_are_nan) {
  const ScratchFolder folder;
  const InputSpec targets = {.name = "targets",
                             .per = Per::row,
                             .inner = {2},
                             .type = HostType::real,
                             .fill = Fill::ignored};
  const std::vector<float> wide = {-1, NAN, NAN, NAN, 0, 1};
  const std::vector<uint16_t> narrow = {0xBC00, 0x7E00, 0x7E00, 0xFE00, 0, 0x3C00};
  for (const ArrayToPut& array : {array_of("targets", SafeDtype::f32, {3, 2}, wide),
                                  array_of("targets", SafeDtype::f16, {3, 2}, narrow)}) {
    const auto rows = array_rows(posix_files(), {put_arrays(folder / "a.safetensors", {array})},
                                 {.inputs = {targets}, .seq = 2});
    EXPECT_EQ(rows->n_counted(0, {}, targets), 1);
    EXPECT_EQ(rows->n_counted(1, {}, targets), 0);
    EXPECT_EQ(rows->n_counted(2, {}, targets), 2);
  }
}

TEST(ArrayRows, files_follow_each_other_and_change_the_identity) {
  const ScratchFolder folder;
  const auto put = [&](const char* name, std::vector<int32_t> tokens) {
    return put_arrays(folder / name,
                      {array_of<int32_t>("tokens", SafeDtype::i32, {std::ssize(tokens) / 2, 2},
                                         std::move(tokens))});
  };
  const std::string a = put("a.safetensors", {1, 2}), b = put("b.safetensors", {3, 4, 5, 6});
  const ArrayRowsOptions options = {.inputs = {kTokens}, .seq = 2};
  const auto rows = array_rows(posix_files(), {a, b}, options);
  EXPECT_EQ(rows->n_samples(), 3);
  EXPECT_THAT(SampleEval(rows, {.seq = 2}).at(0, 3).ints("tokens"), ElementsAre(1, 2, 3, 4, 5, 6));
  EXPECT_NE(rows->identity(), array_rows(posix_files(), {b, a}, options)->identity());
  const uint64_t before = array_rows(posix_files(), {a}, options)->identity();
  put("a.safetensors", {1, 3});
  EXPECT_NE(array_rows(posix_files(), {a}, options)->identity(), before);
}

TEST(ArrayRows, what_follows_from_other_arrays_may_be_there) {
  const ScratchFolder folder;
  const InputSpec positions = positions_input();
  const ArrayToPut tokens = array_of<int32_t>("tokens", SafeDtype::i32, {1, 2}, {1, 2});
  const ArrayRowsOptions options = {
      .inputs = {kTokens, positions}, .made = {"positions"}, .seq = 2};
  const std::string bare = put_arrays(folder / "a.safetensors", {tokens});
  EXPECT_EQ(array_rows(posix_files(), {bare}, options)->inputs().size(), 1u);
  const std::string full =
      put_arrays(folder / "b.safetensors",
                 {tokens, array_of<int32_t>("positions", SafeDtype::i32, {1, 2}, {7, 8}),
                  array_of<int32_t>("lengths", SafeDtype::i32, {1}, {1})});
  const auto rows = array_rows(posix_files(), {full}, options);
  const Batch batch = SampleEval(rows, {.seq = 2}).at(0, 1);
  EXPECT_THAT(batch.ints("positions"), ElementsAre(7, 8));
  EXPECT_THAT(batch.lengths, ElementsAre(1));
}

TEST(ArrayRows, rows_of_a_sample_stay_together) {
  const ScratchFolder folder;
  const std::string path =
      put_arrays(folder / "a.safetensors",
                 {array_of<int32_t>("tokens", SafeDtype::i32, {4, 2}, {1, 2, 3, 4, 5, 6, 7, 8}),
                  array_of<int32_t>("rank", SafeDtype::i32, {2}, {10, 20}),
                  array_of<int32_t>("lengths", SafeDtype::i32, {4}, {2, 1, 1, 2})});
  const auto rows = array_rows(posix_files(), {path},
                               {.inputs = {kTokens, kRank}, .seq = 2, .rows_per_sample = 2});
  ASSERT_EQ(rows->n_samples(), 2);
  const Batch batch = SampleEval(rows, {.seq = 2}).at(2, 2);
  EXPECT_THAT(batch.ints("tokens"), ElementsAre(5, 6, 7, 8));
  EXPECT_THAT(batch.ints("rank"), ElementsAre(20));
  EXPECT_THAT(batch.lengths, ElementsAre(1, 2));
}

TEST(ArrayRows, items_keep_the_order_of_their_elements) {
  const ScratchFolder folder;
  const InputSpec picture = {
      .name = "pixels", .per = Per::row, .inner = {3, 4, 2}, .type = HostType::real};
  const auto read = [&](std::vector<int64_t> shape) {
    shape.insert(shape.begin(), 2);
    return error(folder, {array_of<float>("pixels", SafeDtype::f32, shape, std::vector<float>(48))},
                 {.inputs = {picture}});
  };
  const std::vector<std::vector<int64_t>> right = {{3, 4, 2},    {24},         {3, 8},      {12, 2},
                                                   {3, 2, 2, 2}, {1, 3, 4, 2}, {3, 4, 2, 1}},
                                          wrong = {{4, 3, 2},
                                                   {3, 2, 4},
                                                   {2, 3, 4},
                                                   {8, 3},
                                                   {4, 2, 1, 3}};
  for (const auto& shape : right)
    EXPECT_EQ(read(shape), "no error") << fmt::format("{}", fmt::join(shape, ", "));
  for (const auto& shape : wrong) {
    EXPECT_EQ(read(shape), fmt::format("[data] DIR/a.safetensors: 'pixels': expected [rows, 3, 4, "
                                       "2], got [2, {}]",
                                       fmt::join(shape, ", ")));
  }
  EXPECT_EQ(read({4, 2, 3}),
            "[data] DIR/a.safetensors: 'pixels': expected [rows, 3, 4, 2], got [2, 4, 2, 3]: "
            "channels must come before rows and columns (NumPy: transpose(0, 3, 1, 2))");
}

TEST(ArrayRows, what_does_not_fit_is_said_when_the_files_are_opened) {
  const ScratchFolder folder;
  const ArrayRowsOptions options = {.inputs = {kTokens, kFrames}, .seq = 2};
  const ArrayToPut tokens = array_of<int32_t>("tokens", SafeDtype::i32, {2, 2}, {1, 2, 3, 4});
  const auto frames = [](std::vector<int64_t> shape) {
    int64_t n = 1;
    for (const int64_t extent : shape) n *= extent;
    return array_of<float>("frames", SafeDtype::f32, std::move(shape),
                           std::vector<float>(static_cast<size_t>(n)));
  };
  const auto with = [&](const ArrayToPut& other) {
    return error(folder, {other, frames({2, 4})}, options);
  };
  const std::string file = "[data] DIR/a.safetensors: ";
  EXPECT_EQ(error(folder, {tokens}, options), file + "expected an array 'frames', got tokens");
  EXPECT_EQ(with(array_of<float>("tokens", SafeDtype::f32, {2, 2}, {1, 2, 3, 4})),
            file + "'tokens': expected integers, got F32");
  EXPECT_EQ(with(array_of<int32_t>("tokens", SafeDtype::i32, {1, 4}, {1, 2, 3, 4})),
            file + "'tokens': expected [rows, 2], got [1, 4]");
  EXPECT_EQ(with(array_of<int32_t>("tokens", SafeDtype::i32, {4}, {1, 2, 3, 4})),
            file + "'tokens': expected [rows, 2], got [4]");
  EXPECT_EQ(with(array_of<int32_t>("tokens", SafeDtype::i32, {2, 2}, {1, 2, 9, 4})),
            file + "'tokens': expected values from 0 to 8, got 9 in row 1");
  EXPECT_EQ(with(array_of<int32_t>("tokens", SafeDtype::i32, {2, 2}, {1, -1, 0, 4})),
            file + "'tokens': expected values from 0 to 8, got -1 in row 0");
  EXPECT_EQ(with(array_of<int32_t>("tokens", SafeDtype::i32, {0, 2}, {})),
            file + "'frames': expected 0 rows as in the array before it, got 2");
  EXPECT_EQ(error(folder, {tokens, frames({3, 4})}, options),
            file + "'frames': expected 2 rows as in the array before it, got 3");
  EXPECT_EQ(error(folder, {tokens, frames({2, 5})}, options),
            file + "'frames': expected [rows, 4], got [2, 5]");
  EXPECT_EQ(error(folder, {tokens}, {.inputs = {kTokens}, .seq = 2, .rows_per_sample = 3}),
            file + "'tokens': expected rows in groups of 3, got 2");
  EXPECT_EQ(error(folder, {tokens, array_of<int32_t>("lengths", SafeDtype::i32, {2}, {1, 3})},
                  {.inputs = {kTokens}, .seq = 2}),
            file + "'lengths': expected values from 1 to 2, got 3 in row 1");
}

}  // namespace
}  // namespace octet::infer_array_rows_test
