// Two programs of one process that train at the same time, on a stream each, get the bits that each
// gets alone: no kernel keeps anything that another launch could meet.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "base/philox.h"
#include "compile/program.h"
#include "formats/bf16.h"
#include "gpu/parity/gpu.h"
#include "infer/model_spec.h"
#include "runtime/executor.h"

namespace octet::parity_two_streams_test {
namespace {

constexpr int kSteps = 6;

// Attention of this head size is our own: the library's gradient has no fixed order.
ModelSpec small_llama() {
  ModelSpec spec;
  spec.vocab = 256;
  spec.hidden = 320;
  spec.layers = 2;
  spec.heads = 16;
  spec.kv_heads = 16;
  spec.ffn = 896;
  return spec;
}

// A training step whose weights and tokens follow from `seed`.
class TrainingProgram {
 public:
  TrainingProgram(Backend& gpu, const char* recipe, uint32_t seed, Stream stream)
      : device_(*gpu.device),
        seed_(seed),
        program_(options(recipe), *gpu.catalogue),
        plan_(program_.plan(function::step)) {
    for (PlanStep& step : plan_.steps) step.stream = stream;
    int64_t arena_bytes[kArenaCount];
    program_.arena_bytes(arena_bytes);
    arenas_ = std::make_unique<Arenas>(device_, arena_bytes);
    bound_ = std::make_unique<BoundPlan>(plan_, *gpu.catalogue, *arenas_);
  }

  void reset() {
    for (const GraphInput& input : plan_.graph.inputs) {
      const TensorType& type = plan_.graph.type(input.value);
      const auto bytes = first_values(input, type);
      bound_->write_input(input.name, bytes.data(), std::ssize(bytes));
    }
  }
  void step() {
    bound_->run([](const Plan&, const PlanStep&, bool) {});
  }
  float loss() { return bound_->read_scalar("loss"); }
  // Parameters and states.
  std::vector<std::byte> bits() {
    std::vector<std::byte> all(static_cast<size_t>(arenas_->bytes(Arena::persistent)));
    device_.copy_out(all.data(), arenas_->arena(Arena::persistent), std::ssize(all));
    return all;
  }

 private:
  static ProgramOptions options(const char* recipe) {
    ProgramOptions result;
    result.forward = forward_builder(resolved(small_llama()));
    result.recipe = recipe;
    result.train = {.batch = 2, .seq = 64};
    result.optim.state_m = result.optim.state_v = state_format_from_name("e4m3+x");
    return result;
  }
  std::vector<std::byte> first_values(const GraphInput& input, const TensorType& type) const {
    const RandomStream random{.name = name_hash(input.name), .seed = seed_};
    const bool is_weight = input.kind == InputKind::parameter;
    const auto width = static_cast<size_t>(dtype_bytes(type.dtype));
    std::vector<std::byte> bytes(static_cast<size_t>(type.n_bytes()));
    for (size_t i = 0; i < bytes.size() / width; ++i) {
      const float value = is_weight ? (random.uniform(i) - 0.5f) / 8 : 0x1p-10f;
      const uint16_t half = bf16_from_f32(value);
      const auto token = static_cast<int32_t>(random.bits(i) % 256);
      const bool is_state = input.kind == InputKind::state;
      if (is_state || width == 1) continue;  // zeros
      const void* from = type.dtype == Dtype::i32 ? static_cast<const void*>(&token)
                         : width == 2             ? static_cast<const void*>(&half)
                                                  : static_cast<const void*>(&value);
      std::memcpy(bytes.data() + i * width, from, width);
    }
    return bytes;
  }

  Device& device_;
  uint32_t seed_;
  Program program_;
  Plan plan_;
  std::unique_ptr<Arenas> arenas_;
  std::unique_ptr<BoundPlan> bound_;
};

class TwoStreams : public testing::TestWithParam<const char*> {};

TEST_P(TwoStreams, of_two_programs_leave_the_bits_of_each_alone) {
  OCTET_GPU_OR_SKIP(gpu);
  TrainingProgram one(*gpu, GetParam(), 1, Stream::compute);
  TrainingProgram two(*gpu, GetParam(), 2, Stream::transfer);
  std::vector<std::vector<std::byte>> alone;
  for (TrainingProgram* program : {&one, &two}) {
    program->reset();
    for (int i = 0; i < kSteps; ++i) program->step();
    alone.push_back(program->bits());
    EXPECT_TRUE(std::isfinite(program->loss()));
  }
  EXPECT_NE(alone[0], alone[1]);
  one.reset();
  two.reset();
  for (int i = 0; i < kSteps; ++i) one.step(), two.step();
  EXPECT_EQ(one.bits(), alone[0]);
  EXPECT_EQ(two.bits(), alone[1]);
}

INSTANTIATE_TEST_SUITE_P(gpu, TwoStreams, testing::Values("coat", "coat-fast", "fp8_linear"),
                         [](const auto& info) {
                           std::string name = info.param;
                           std::ranges::replace(name, '-', '_');
                           return name;
                         });

}  // namespace
}  // namespace octet::parity_two_streams_test
