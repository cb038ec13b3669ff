// Launches of a decoded token that are made as one (plan/joined_launches.h) leave the bits of
// launches one by one.
#include <gtest/gtest.h>

#include <cstring>

#include "base/philox.h"
#include "compile/program.h"
#include "formats/bf16.h"
#include "gpu/parity/gpu.h"
#include "infer/model_spec.h"
#include "runtime/executor.h"

namespace octet::attention_joined_test {
namespace {

struct Case {
  const char* name;
  int64_t batch;
  FrozenFormat weights;
  int64_t head_dim, cache = 16;
};

ModelSpec small_llama(int64_t head_dim) {
  ModelSpec spec;
  spec.vocab = 256;
  spec.hidden = 4 * head_dim;
  spec.layers = 2;
  spec.heads = 4;
  spec.kv_heads = 2;
  spec.ffn = 336;  // a block of columns is not whole
  return spec;
}

// Finite values of either sign.
std::vector<std::byte> random_bytes(const TensorType& type, uint64_t name) {
  const RandomStream random{.name = name};
  std::vector<std::byte> bytes(static_cast<size_t>(type.n_bytes()));
  const auto width = static_cast<size_t>(dtype_bytes(type.dtype));
  for (size_t i = 0; i < bytes.size() / width; ++i) {
    const float value = random.uniform(i) - 0.5f;
    const uint16_t half = bf16_from_f32(value);
    const auto code = static_cast<uint8_t>(random.bits(i) & 0xBF);
    const void* from = width == 4   ? static_cast<const void*>(&value)
                       : width == 2 ? static_cast<const void*>(&half)
                                    : static_cast<const void*>(&code);
    std::memcpy(bytes.data() + i * width, from, width);
  }
  return bytes;
}

class JoinedLaunches : public testing::TestWithParam<Case> {};

TEST_P(JoinedLaunches, leave_the_bits_of_launches_one_by_one) {
  OCTET_GPU_OR_SKIP(gpu);
  const Case& c = GetParam();
  const FunctionKey key{function::decode, {.batch = c.batch, .seq = 1, .cache = c.cache}};
  ProgramOptions options;
  options.forward = forward_builder(resolved(small_llama(c.head_dim)));
  options.recipe_options.frozen = c.weights;
  options.freezes_parameters = c.weights != FrozenFormat::as_computed;
  options.train = {.batch = c.batch, .seq = c.cache};
  options.inference_only = true;
  Program program(options, *gpu->catalogue, {key});
  const Plan& plan = program.plan(key.name, key.size);
  int64_t arena_bytes[kArenaCount];
  program.arena_bytes(arena_bytes);
  Arenas arenas(*gpu->device, arena_bytes);
  BoundPlan bound(plan, *gpu->catalogue, arenas);
  const auto n = static_cast<size_t>(c.batch);
  std::vector<int32_t> tokens(n), positions(n);
  for (size_t i = 0; i < n; ++i)
    tokens[i] = static_cast<int32_t>(i * 37 % 256),
    positions[i] = static_cast<int32_t>((i + 1) * 83 % c.cache);

  enum class How : uint8_t { joined, one_by_one };
  const auto logits = [&](How how) {
    for (const auto& [name, slot] : program.layout().slots) {
      const auto bytes = random_bytes(slot.type, name_hash(name));
      gpu->device->copy_in(arenas.arena(slot.arena) + slot.offset, bytes.data(), std::ssize(bytes));
    }
    bound.write_input("tokens", tokens.data(), c.batch * 4);
    bound.write_input("positions", positions.data(), c.batch * 4);
    if (how == How::joined) {
      bound.run();
    } else {
      bound.run([](const Plan&, const PlanStep&, bool) {});
    }
    std::vector<std::byte> bytes(
        static_cast<size_t>(plan.graph.type(plan.graph.find_output("logits")->value).n_bytes()));
    bound.read_output("logits", bytes.data(), std::ssize(bytes));
    return bytes;
  };
  const auto expected = logits(How::one_by_one);
  EXPECT_EQ(logits(How::joined), expected);  // launched
  EXPECT_EQ(logits(How::joined), expected);  // recorded
  EXPECT_EQ(logits(How::joined), expected);  // replayed
}

INSTANTIATE_TEST_SUITE_P(gpu, JoinedLaunches,
                         testing::Values(Case{"one_text", 1, FrozenFormat::as_computed, 64},
                                         Case{"one_text_e4m3", 1, FrozenFormat::e4m3, 64},
                                         Case{"two_texts_e4m3", 2, FrozenFormat::e4m3, 32},
                                         Case{"odd_heads", 1, FrozenFormat::as_computed, 20},
                                         Case{"many_texts", 48, FrozenFormat::as_computed, 64},
                                         Case{"shared_keys", 160, FrozenFormat::as_computed, 20},
                                         Case{"slices", 3, FrozenFormat::as_computed, 20, 600}),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace octet::attention_joined_test
