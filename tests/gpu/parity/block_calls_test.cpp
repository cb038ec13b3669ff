// Blocks on memory and streams of a caller (library/block.h): a device's results are the CPU's
// where sums are exact, and NaN where a quantizer meets what is not finite.
#include "library/block.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <map>

#include "formats/bf16.h"
#include "gpu/parity/gpu.h"
#include "library/open_backend.h"
#include "library/user_graph.h"

namespace octet::parity_block_calls_test {
namespace {

constexpr int64_t kRows = 32, kIn = 64, kOut = 16;

constexpr std::string_view kLinear = R"(graph "block" phase logical
%0 = input batch "x" : real[32,64]
%1 = input parameter "w" : real[16,64]
%2 = gemm(%0, %1) {trans_b = true, role = forward} : real[32,16] @ layer 0, forward, "proj"
output "y" %2
)";

using Values = std::vector<uint16_t>;  // bf16
using Named = std::map<std::string, std::vector<std::byte>>;

// Integers up to 7, which stands in every row and column: codes and sums are exact.
Values integers(int64_t rows, int64_t cols, int seed) {
  Values values;
  for (int64_t i = 0; i < rows * cols; ++i) {
    const bool is_largest = (i / cols + i % cols) % 8 == 0;
    const auto other = static_cast<float>((i * 37 + seed * 11 + i / 5) % 15 - 7);
    values.push_back(bf16_from_f32(is_largest ? 7.0f : other));
  }
  return values;
}

class Caller {
 public:
  explicit Caller(Backend backend)
      : machine_(std::make_shared<BlockMachine>(std::move(backend))),
        block_({.graph = read_graph(kLinear),
                .recipe = "fp8_linear",
                .wanted = {"x", "w"},
                .quantized = {"y"}},
               machine_) {
    workspace_ = machine_->device().allocate(std::max<int64_t>(block_.workspace_bytes(), 1));
  }

  // Both passes: y and the gradients.
  std::map<std::string, Values> run(const Values& x, const Values& w, const Values& dy) {
    Named given{{"x", bytes_of(x)}, {"w", bytes_of(w)}, {"d.y", bytes_of(dy)}};
    pass(block_.forward(), &Block::run_forward, given);
    pass(block_.backward(), &Block::run_backward, given);
    std::map<std::string, Values> results;
    for (const char* name : {"y", "grad:x", "grad:w"}) {
      Values values(given.at(name).size() / 2);
      std::memcpy(values.data(), given.at(name).data(), given.at(name).size());
      results[name] = values;
    }
    return results;
  }

 private:
  static std::vector<std::byte> bytes_of(const Values& values) {
    std::vector<std::byte> bytes(2 * values.size());
    std::memcpy(bytes.data(), values.data(), bytes.size());
    return bytes;
  }

  // Results join what is given.
  void pass(const Graph& graph, void (Block::*run)(const BlockCall&), Named& given) {
    Device& device = machine_->device();
    std::vector<std::unique_ptr<DeviceMemory>> memory;
    std::vector<std::byte*> inputs, outputs;
    for (const GraphInput& input : graph.inputs) {
      const std::vector<std::byte>& bytes = given.at(input.name);
      memory.push_back(device.allocate(static_cast<int64_t>(bytes.size())));
      device.copy_in(memory.back()->data(), bytes.data(), static_cast<int64_t>(bytes.size()));
      inputs.push_back(memory.back()->data());
    }
    for (const GraphOutput& output : graph.outputs) {
      memory.push_back(device.allocate(graph.type(output.value).n_bytes()));
      outputs.push_back(memory.back()->data());
    }
    (block_.*run)({.inputs = inputs, .outputs = outputs, .workspace = workspace()});
    device.borrow_stream(nullptr);  // of the calls
    device.synchronize();
    device.return_stream();
    for (size_t i = 0; i < outputs.size(); ++i) {
      const GraphOutput& output = graph.outputs[i];
      std::vector<std::byte> bytes(static_cast<size_t>(graph.type(output.value).n_bytes()));
      device.copy_out(bytes.data(), outputs[i], static_cast<int64_t>(bytes.size()));
      given[output.name] = bytes;
    }
  }
  std::byte* workspace() const {
    return block_.workspace_bytes() > 0 ? workspace_->data() : nullptr;
  }

  std::shared_ptr<BlockMachine> machine_;
  Block block_;
  std::unique_ptr<DeviceMemory> workspace_;
};

Backend gpu_of_calls() {
  return open_backend({.device = "cuda", .threads = 1, .cuda_module = gpu_module()});
}

bool all_nan(const Values& values) {
  return std::ranges::all_of(values, [](uint16_t x) { return (x & 0x7FFF) > 0x7F80; });
}

TEST(BlockCalls, have_the_bits_of_the_cpu_where_sums_are_exact) {
  OCTET_GPU_OR_SKIP(gpu);
  const Values x = integers(kRows, kIn, 1), w = integers(kOut, kIn, 2),
               dy = integers(kRows, kOut, 3);
  const auto expected = Caller(open_backend({.threads = 1})).run(x, w, dy);
  const auto got = Caller(gpu_of_calls()).run(x, w, dy);
  EXPECT_EQ(got, expected);
  double sum = 0;
  for (size_t k = 0; k < kIn; ++k) sum += double{f32_from_bf16(x[k])} * f32_from_bf16(w[k]);
  EXPECT_EQ(expected.at("y")[0], bf16_from_f32(static_cast<float>(sum)));
}

TEST(BlockCalls, give_nan_where_an_operand_is_not_finite) {
  OCTET_GPU_OR_SKIP(gpu);
  const Values x = integers(kRows, kIn, 1), w = integers(kOut, kIn, 2),
               dy = integers(kRows, kOut, 3);
  Caller caller(gpu_of_calls());
  for (const uint16_t bad : {uint16_t{0x7F80}, uint16_t{0x7FC1}}) {  // infinity, NaN
    Values broken = x;
    broken[5] = bad;
    EXPECT_TRUE(all_nan(caller.run(broken, w, dy).at("y")));
    broken = dy;
    broken[7] = bad;
    const auto results = caller.run(x, w, broken);
    EXPECT_FALSE(all_nan(results.at("y")));
    EXPECT_TRUE(all_nan(results.at("grad:x")) && all_nan(results.at("grad:w")));
  }
  EXPECT_FALSE(all_nan(caller.run(x, w, dy).at("grad:w")));
}

}  // namespace
}  // namespace octet::parity_block_calls_test
