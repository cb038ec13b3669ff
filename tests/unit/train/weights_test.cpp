#include "train/weights.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <mutex>

#include "formats/codec.h"
#include "ir/sharding.h"
#include "math/adamw.h"
#include "train/state_io.h"
#include "unit/base/error_of.h"
#include "unit/base/scratch_folder.h"
#include "unit/train/host_device.h"

namespace octet::train_weights_test {
namespace {

using test::HostDevice;

Layout layout_of(const std::vector<std::pair<std::string, TensorType>>& slots) {
  Layout layout;
  int64_t& used = layout.arena_bytes[static_cast<int>(Arena::persistent)];
  for (const auto& [name, type] : slots) {
    const bool is_state = name.find(':') != std::string::npos;
    layout.slots[name] = {.type = type,
                          .kind = is_state ? InputKind::state : InputKind::parameter,
                          .key = state_key(name, type.dtype),
                          .arena = Arena::persistent,
                          .offset = used};
    used += align_up(type.n_bytes());
  }
  return layout;
}

template <typename T>
std::vector<T> read_slot(Arenas& arenas, const Layout& layout, const std::string& name) {
  const Layout::Slot& slot = layout.slots.at(name);
  std::vector<T> values(static_cast<size_t>(slot.type.n_bytes()) / sizeof(T));
  std::memcpy(values.data(), arenas.arena(slot.arena) + slot.offset,
              static_cast<size_t>(slot.type.n_bytes()));
  return values;
}

const ParameterSpec kMatrix{.name = "w", .shape = {64, 48}, .init = Init::normal, .std = 0.02};

TEST(InitialValues, are_normal_with_the_standard_deviation) {
  const std::vector<float> values = initial_values(kMatrix, 1);
  double sum = 0, squares = 0;
  for (const float x : values) {
    sum += static_cast<double>(x);
    squares += static_cast<double>(x) * static_cast<double>(x);
  }
  const auto n = static_cast<double>(values.size());
  EXPECT_NEAR(sum / n, 0, 4 * 0.02 / std::sqrt(n));
  EXPECT_NEAR(std::sqrt(squares / n), 0.02, 4 * 0.02 / std::sqrt(2 * n));
}

TEST(InitialValues, depend_on_seed_and_name_alone) {
  EXPECT_EQ(initial_values(kMatrix, 1), initial_values(kMatrix, 1));
  EXPECT_NE(initial_values(kMatrix, 1), initial_values(kMatrix, 2));
  ParameterSpec other = kMatrix;
  other.name = "v";
  EXPECT_NE(initial_values(kMatrix, 1), initial_values(other, 1));
  other.init = Init::ones;
  EXPECT_EQ(initial_values(other, 1), std::vector<float>(64 * 48, 1.0f));
}

TEST(WriteMaster, weight_and_remainder_are_the_f32_value) {
  const TensorType bf16{.dtype = Dtype::bf16, .shape = {64, 48}};
  const TensorType i16{.dtype = Dtype::i16, .shape = {64, 48}};
  const Layout layout = layout_of({{"w", bf16}, {"master:w", i16}});
  HostDevice device;
  Arenas arenas(device, layout.arena_bytes);
  const std::vector<float> values = initial_values(kMatrix, 3);
  write_master(arenas, layout, "w", values);
  const auto hi = read_slot<uint16_t>(arenas, layout, "w");
  const auto lo = read_slot<int16_t>(arenas, layout, "master:w");
  for (size_t i = 0; i < values.size(); ++i) {
    ASSERT_EQ(join_master({hi[i], lo[i]}), values[i]) << i;
  }
}

TEST(WriteMaster, narrow_weight_beside_an_f32_master_is_rounded_to_nearest_even) {
  const Layout layout = layout_of({{"w", {.dtype = Dtype::bf16, .shape = {3}}},
                                   {"master:w", {.dtype = Dtype::f32, .shape = {3}}}});
  HostDevice device;
  Arenas arenas(device, layout.arena_bytes);
  const std::vector<float> values = {1.00390625f, 1.01171875f, -0.3f};  // two ties
  write_master(arenas, layout, "w", values);
  EXPECT_EQ(read_slot<uint16_t>(arenas, layout, "w"),
            (std::vector<uint16_t>{0x3F80, 0x3F82, 0xBE9A}));
  EXPECT_EQ(read_slot<float>(arenas, layout, "master:w"), values);
}

// 1,400,001 elements on 2 ranks, cut where it is no boundary of anything; f32 takes two buffers.
TEST(WriteMaster, of_pieces_fills_this_ranks_shard_from_end_to_end) {
  constexpr int64_t kWhole = 1'400'001, kShard = 700'001, kCut = 900'001;
  Layout layout = layout_of({{"w", {.dtype = Dtype::bf16, .shape = {kShard}}},
                             {"master:w", {.dtype = Dtype::f32, .shape = {kShard}}}});
  for (auto& [name, slot] : layout.slots) slot.whole = Shape{kWhole};
  std::vector<float> values(kWhole);
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i + 1);
  HostDevice device;
  Arenas arenas(device, layout.arena_bytes);
  for (layout.rank = 0; layout.rank < 2; ++layout.rank) {
    write_master(arenas, layout, "w", std::span(values).first(kCut));
    write_master(arenas, layout, "w", std::span(values).subspan(kCut), kCut);
    const ElementRange own = shard_range(kWhole, kShard, layout.rank);
    const auto shard =
        std::span(values).subspan(static_cast<size_t>(own.first), static_cast<size_t>(own.count));
    const auto hi = read_slot<uint16_t>(arenas, layout, "w");
    const auto master = read_slot<float>(arenas, layout, "master:w");
    for (size_t i = 0; i < shard.size(); ++i) {
      ASSERT_EQ(master[i], shard[i]) << i;
      ASSERT_EQ(hi[i], bf16_from_f32(shard[i])) << i;
    }
  }
}

TEST(WriteWeights, zeroes_the_states) {
  const TensorType f32{.dtype = Dtype::f32, .shape = {64, 48}};
  const Layout layout = layout_of({{"w", f32}, {"adam_m:w", f32}});
  HostDevice device;
  Arenas arenas(device, layout.arena_bytes);
  write_weights(arenas, layout, {kMatrix},
                [](const ParameterSpec& p) { return initial_values(p, 1); });
  EXPECT_EQ(read_slot<float>(arenas, layout, "w"), initial_values(kMatrix, 1));
  EXPECT_EQ(read_slot<float>(arenas, layout, "adam_m:w"), std::vector<float>(64 * 48, 0.0f));
}

// Fills weights of one name itself, with 7, and leaves the others to the host.
struct InitCatalogue : Catalogue {
  explicit InitCatalogue(RandomStream its_stream) : mine(its_stream) {}
  std::optional<KernelChoice> choose(const Graph& /*g*/, const Node& /*n*/) const override {
    return std::nullopt;
  }
  LaunchFn prepare(const Graph&, const Node&, const KernelChoice&) override { return {}; }
  bool init_weight(const WeightInit& what) override {
    if (what.random.name != mine.name || what.random.seed != mine.seed) return false;
    EXPECT_EQ(what.std, 0.02);
    EXPECT_EQ(what.weight, Dtype::f32);
    EXPECT_EQ(what.master_at, nullptr);
    std::fill_n(reinterpret_cast<float*>(what.weight_at), what.weight_run.count, 7.0f);
    initialized = what;
    return true;
  }
  RandomStream mine;
  WeightInit initialized = {};
};

TEST(DrawWeights, leaves_to_the_host_what_the_device_cannot_draw) {
  const TensorType f32{.dtype = Dtype::f32, .shape = {64, 48}};
  const Layout layout = layout_of({{"v", f32}, {"w", f32}, {"adam_m:w", f32}});
  ParameterSpec other = kMatrix;
  other.name = "v";
  HostDevice device;
  Arenas arenas(device, layout.arena_bytes);
  InitCatalogue catalogue({.name = name_hash("w"), .seed = 3});
  init_weights(arenas, layout, {kMatrix, other}, 3, catalogue);
  EXPECT_EQ(read_slot<float>(arenas, layout, "w"), std::vector<float>(64 * 48, 7.0f));
  EXPECT_EQ(read_slot<float>(arenas, layout, "v"), initial_values(other, 3));
  EXPECT_EQ(read_slot<float>(arenas, layout, "adam_m:w"), std::vector<float>(64 * 48, 0.0f));
}

// 3,072 elements on 5 ranks: shards of 768, the last one empty.
TEST(DrawWeights, of_a_shard_draws_that_run_of_the_parameter) {
  Layout layout = layout_of({{"w", {.dtype = Dtype::f32, .shape = {768}}}});
  layout.slots.at("w").whole = Shape{64, 48};
  HostDevice device;
  Arenas arenas(device, layout.arena_bytes);
  for (int64_t rank = 0; rank < 5; ++rank) {
    layout.rank = rank;
    InitCatalogue catalogue({.name = name_hash("w"), .seed = 3});
    init_weights(arenas, layout, {kMatrix}, 3, catalogue);
    EXPECT_EQ(catalogue.initialized.weight_run,
              (ElementRange{std::min<int64_t>(3072, rank * 768), rank < 4 ? 768 : 0}));
  }
}

// Copies in from memory of its own alone.
class PinnedDevice : public HostDevice {
 public:
  std::unique_ptr<DeviceMemory> allocate_host(int64_t bytes) override {
    auto memory = HostDevice::allocate_host(bytes);
    const std::lock_guard lock(mutex_);
    pinned_.push_back({memory->data(), static_cast<size_t>(bytes)});
    return memory;
  }
  void copy_in(std::byte* to, const void* from, int64_t bytes) override {
    {
      const std::lock_guard lock(mutex_);
      const auto* begin = static_cast<const std::byte*>(from);
      n_elsewhere += std::ranges::none_of(pinned_, [&](const auto& memory) {
        return begin >= memory.data() && begin + bytes <= memory.data() + memory.size();
      });
    }
    HostDevice::copy_in(to, from, bytes);
  }
  int n_elsewhere = 0;

 private:
  std::mutex mutex_;
  std::vector<std::span<const std::byte>> pinned_;
};

TEST(LoadWeights, come_through_memory_that_the_device_copies_from_at_its_best_speed) {
  const ModelSpec spec{.kind = ModelKind::llama,
                       .hidden = 64,
                       .layers = 1,
                       .heads = 2,
                       .kv_heads = 2,
                       .head_dim = 32,
                       .ffn = 96,
                       .vocab = 300};
  const std::vector<ParameterSpec> parameters = model_parameters(spec);
  std::vector<std::vector<float>> values;
  std::vector<TensorSource> sources;
  std::vector<std::pair<std::string, TensorType>> slots;
  for (const ParameterSpec& one : parameters) {
    values.push_back(initial_values(one, 5));
    sources.push_back(span_source(tensor_decl(one.name, Dtype::f32, one.shape),
                                  std::as_bytes(std::span(values.back()))));
    slots.push_back({one.name, {.dtype = Dtype::bf16, .shape = one.shape}});
    slots.push_back({"master:" + one.name, {.dtype = Dtype::i16, .shape = one.shape}});
  }
  const test::ScratchFolder folder;
  const std::string path = folder / "model.safetensors";
  write_atomically(posix_files(), path, [&](FileWriter& out) { write_safetensors(out, sources); });
  const Layout layout = layout_of(slots);
  PinnedDevice device;
  Arenas arenas(device, layout.arena_bytes);
  load_weights(arenas, layout, parameters, WeightReader(posix_files(), path, spec), {.seed = 1});
  EXPECT_EQ(device.n_elsewhere, 0);
  for (size_t p = 0; p < parameters.size(); ++p) {
    const auto hi = read_slot<uint16_t>(arenas, layout, parameters[p].name);
    const auto lo = read_slot<int16_t>(arenas, layout, "master:" + parameters[p].name);
    for (size_t i = 0; i < values[p].size(); ++i) {
      ASSERT_EQ(join_master({hi[i], lo[i]}), values[p][i]) << parameters[p].name << " " << i;
    }
  }
}

TEST(StateIo, restores_every_byte_and_names_a_slot_that_differs) {
  const TensorType codes{
      .dtype = Dtype::e4m3, .shape = {64, 48}, .granularity = {Granularity::Kind::tensor}};
  const Layout layout = layout_of({{"w", {.dtype = Dtype::bf16, .shape = {64, 48}}},
                                   {"adam_m:w", codes},
                                   {"scale:w", {.dtype = Dtype::f32, .shape = {24}}}});
  HostDevice device;
  Arenas arenas(device, layout.arena_bytes), restored(device, layout.arena_bytes);
  const int64_t n_bytes = arenas.bytes(Arena::persistent);
  for (int64_t i = 0; i < n_bytes; ++i) {
    arenas.arena(Arena::persistent)[i] = static_cast<std::byte>(i * 37 % 251);
  }
  const test::ScratchFolder folder;
  for (const InputKind kind : {InputKind::parameter, InputKind::state}) {
    const std::string path = folder / "a.safetensors";
    write_atomically(posix_files(), path, [&](FileWriter& out) {
      write_safetensors(out, slot_sources(arenas, layout, kind));
    });
    restore_slots(restored, layout, kind, SafetensorsReader::open(posix_files(), path));
  }
  for (const auto& [name, slot] : layout.slots) {
    EXPECT_EQ(read_slot<uint8_t>(arenas, layout, name), read_slot<uint8_t>(restored, layout, name))
        << name;
  }
  const Layout other = layout_of({{"adam_m:w", {.dtype = Dtype::bf16, .shape = {64, 48}}},
                                  {"scale:w", {.dtype = Dtype::f32, .shape = {24}}}});
  const auto reader = SafetensorsReader::open(posix_files(), folder / "a.safetensors");
  EXPECT_EQ(test::error_of([&] { restore_slots(restored, other, InputKind::state, reader); },
                           folder.path()),
            "[resume] DIR/a.safetensors: 'adam_m:w' must be BF16 [64,48], got F8_E4M3 [64,48]");
}

// Checkpoints of scales that had a memory, and of loss scaling that counted rises in a row alone.
TEST(StateIo, reads_scales_and_counters_of_older_checkpoints) {
  const TensorType scalar{.dtype = Dtype::f32, .shape = {}};
  const Layout before = layout_of(
      {{"rescale_factor:q.x", {.dtype = Dtype::f32, .shape = {3}}}, {"loss_scale:window", scalar}});
  const Layout now = layout_of({{"rescale_factor:q.x", scalar},
                                {"loss_scale:window", scalar},
                                {"loss_scale:rises", scalar}});
  HostDevice device;
  Arenas arenas(device, before.arena_bytes), restored(device, now.arena_bytes);
  const auto write = [](Arenas& to, const Layout& layout, const std::string& name,
                        std::vector<float> values) {
    const Layout::Slot& slot = layout.slots.at(name);
    std::memcpy(to.arena(slot.arena) + slot.offset, values.data(), values.size() * sizeof(float));
  };
  write(arenas, before, "rescale_factor:q.x", {0.125f, 7, 4});
  write(arenas, before, "loss_scale:window", {50});
  write(restored, now, "loss_scale:rises", {2});
  const test::ScratchFolder folder;
  const std::string path = folder / "a.safetensors";
  write_atomically(posix_files(), path, [&](FileWriter& out) {
    write_safetensors(out, slot_sources(arenas, before, InputKind::state));
  });
  restore_slots(restored, now, InputKind::state, SafetensorsReader::open(posix_files(), path),
                slot_uses(before));
  EXPECT_EQ(read_slot<float>(restored, now, "rescale_factor:q.x"), std::vector{0.125f});
  EXPECT_EQ(read_slot<float>(restored, now, "loss_scale:window"), std::vector{50.0f});
  EXPECT_EQ(read_slot<float>(restored, now, "loss_scale:rises"), std::vector{0.0f});
}

}  // namespace
}  // namespace octet::train_weights_test
