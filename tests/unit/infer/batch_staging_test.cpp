#include "infer/batch_inputs.h"

#include <gtest/gtest.h>

#include <numeric>
#include <set>

#include "ir/parse.h"

namespace octet::infer_batch_staging_test {
namespace {

// The host's memory; nothing is copied or run.
class HostDevice : public Device {
 public:
  DeviceInfo info() const override { return {.name = "host"}; }
  std::unique_ptr<DeviceMemory> allocate(int64_t bytes) override { return allocate_host(bytes); }
  void copy_in(std::byte*, const void*, int64_t) override {}
  void copy_out(void*, const std::byte*, int64_t) override {}
  void copy_within(std::byte*, const std::byte*, int64_t) override {}
  void fill_zero(std::byte*, int64_t) override {}
  void synchronize() override {}
  void record_timing_event(int, Stream) override {}
  double ms_between(int, int) override { return 0; }
};

const InputSpec kPixels = {
    .name = "pixels", .per = Per::row, .inner = {20000}, .type = HostType::real};
const InputSpec kFew = {.name = "few", .per = Per::row, .inner = {2}, .type = HostType::real};
const InputSpec kUnread = {
    .name = "unread", .per = Per::row, .inner = {20000}, .type = HostType::real};
const InputSpec kTargets = {.name = "targets",
                            .per = Per::row,
                            .inner = {20000},
                            .type = HostType::real,
                            .fill = Fill::ignored};

Graph graph_of(const std::string& dtype) {
  return parse_graph("graph \"g\" phase lowered\n%0 = input batch \"pixels\" : " + dtype +
                         "[2,20000]\n%1 = input batch \"few\" : " + dtype +
                         "[2,2]\n%2 = input batch \"targets\" : f32[2,20000]\noutput \"y\" %0\n",
                     "inputs");
}

Batch batch_of(float first) {
  Batch batch{.batch = 2, .seq = 1};
  for (const InputSpec& input : {kPixels, kFew, kUnread, kTargets}) {
    batch.add(input);
    std::iota(batch.reals(input.name).begin(), batch.reals(input.name).end(), first);
  }
  return batch;
}

TEST(BatchStaging, large_numbers_are_there_as_a_function_reads_them) {
  HostDevice device;
  for (const Dtype dtype : {Dtype::bf16, Dtype::fp16, Dtype::f32}) {
    const BatchStaging staging(device, graph_of(std::string(dtype_name(dtype))));
    const Batch plain = batch_of(0.3f);
    Batch staged = plain;
    staging.stage(staged);
    for (const InputSpec& input : {kPixels, kFew, kTargets}) {
      const Dtype its = input.name == "targets" ? Dtype::f32 : dtype;
      EXPECT_EQ(input_bytes(staged, input.name, its), input_bytes(plain, input.name, its));
      EXPECT_EQ(staged.find(input.name)->staged.data != nullptr, input.name == "pixels");
    }
    EXPECT_TRUE(staged.reals("pixels").empty());
    EXPECT_EQ(staged.reals("unread"), plain.reals("unread"));
    EXPECT_EQ(staged.n_items("targets"), plain.n_items("targets"));
  }
}

TEST(BatchStaging, memory_is_that_of_a_batch_that_nobody_has_any_more) {
  HostDevice device;
  const BatchStaging staging(device, graph_of("bf16"));
  Batch first = batch_of(1), second = batch_of(2);
  staging.stage(first);
  staging.stage(second);
  const auto at = [](const Batch& batch) { return batch.find("pixels")->staged.data.get(); };
  EXPECT_NE(at(first), at(second));
  const std::byte* const freed = at(first);
  const auto bytes = input_bytes(first, "pixels", Dtype::bf16);
  const std::byte* third_at = nullptr;
  {
    const Batch copy = first;
    first = {};
    Batch third = batch_of(3);
    staging.stage(third);
    third_at = at(third);
    EXPECT_NE(third_at, freed);
    EXPECT_EQ(input_bytes(copy, "pixels", Dtype::bf16), bytes);
  }
  Batch fourth = batch_of(4);
  staging.stage(fourth);
  std::set<const std::byte*> known = {freed, third_at};
  EXPECT_TRUE(known.contains(at(fourth)));
}

TEST(BatchStaging, a_batch_outlives_it) {
  HostDevice device;
  Batch batch = batch_of(5);
  const auto bytes = input_bytes(batch, "pixels", Dtype::bf16);
  BatchStaging(device, graph_of("bf16")).stage(batch);
  EXPECT_EQ(input_bytes(batch, "pixels", Dtype::bf16), bytes);
}

}  // namespace
}  // namespace octet::infer_batch_staging_test
