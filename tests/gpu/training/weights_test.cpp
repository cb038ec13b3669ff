// Weights that the GPU initializes equal those that the host initializes, in every form that a slot
// keeps.
#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>

#include "gpu/parity/gpu.h"
#include "ir/sharding.h"
#include "train/weights.h"
#include "unit/train/host_device.h"

namespace octet::training_weights_test {
namespace {

struct Form {
  Dtype weight;
  std::optional<Dtype> master;
};
constexpr Form kForms[] = {{Dtype::f32, {}},          {Dtype::bf16, {}},
                           {Dtype::fp16, {}},         {Dtype::bf16, Dtype::f32},
                           {Dtype::bf16, Dtype::i16}, {Dtype::fp16, Dtype::f32}};

// Tensors that are cut among three ranks, of which this is the second.
enum class Cut { nothing, master, both };

Layout layout_of(const ParameterSpec& parameter, const Form& form, Cut cut) {
  Layout layout;
  layout.rank = 1;
  int64_t& used = layout.arena_bytes[static_cast<int>(Arena::persistent)];
  const auto put = [&](const std::string& name, Dtype dtype, InputKind kind, bool is_cut) {
    TensorType type{.dtype = dtype, .shape = parameter.shape};
    std::optional<Shape> whole;
    if (is_cut) {
      whole = parameter.shape;
      type.shape = {shard_elems(n_elems(parameter.shape), 3)};
    }
    layout.slots[name] = {.type = type,
                          .kind = kind,
                          .key = state_key(name, dtype),
                          .arena = Arena::persistent,
                          .offset = used,
                          .whole = whole};
    used += align_up(type.n_bytes());
  };
  put(parameter.name, form.weight, InputKind::parameter, cut == Cut::both);
  if (form.master)
    put("master:" + parameter.name, *form.master, InputKind::state, cut != Cut::nothing);
  return layout;
}

std::vector<std::byte> bytes_of(Arenas& arenas, const Layout::Slot& slot) {
  std::vector<std::byte> bytes(static_cast<size_t>(slot.type.n_bytes()));
  arenas.device().copy_out(bytes.data(), arenas.arena(slot.arena) + slot.offset,
                           slot.type.n_bytes());
  return bytes;
}

// Elements whose bits differ. The machines' logarithm and cosine differ in the last bit of a
// double, which shows in an f32 once in some ten millions.
int64_t n_unequal(const std::vector<std::byte>& a, const std::vector<std::byte>& b, int width) {
  int64_t n = 0;
  for (size_t i = 0; i < a.size(); i += static_cast<size_t>(width))
    n += std::memcmp(a.data() + i, b.data() + i, static_cast<size_t>(width)) != 0 ? 1 : 0;
  return n;
}

void expect_equal(Backend& gpu, test::HostDevice& host, const ParameterSpec& parameter,
                  const Layout& layout) {
  Arenas want(host, layout.arena_bytes), got(*gpu.device, layout.arena_bytes);
  write_weights(want, layout, {parameter},
                [](const ParameterSpec& p) { return initial_values(p, 5); });
  init_weights(got, layout, {parameter}, 5, *gpu.catalogue);
  for (const auto& [name, slot] : layout.slots) {
    const auto a = bytes_of(want, slot), b = bytes_of(got, slot);
    EXPECT_LE(n_unequal(a, b, static_cast<int>(dtype_bytes(slot.type.dtype))),
              n_elems(parameter.shape) / 500'000)
        << name << " " << dtype_name(slot.type.dtype) << " of " << to_string(parameter.shape)
        << (slot.whole ? ", a shard" : "");
  }
}

TEST(DrawnWeights, equal_the_hosts) {
  OCTET_GPU_OR_SKIP(gpu);
  test::HostDevice host;
  for (const Init init : {Init::normal, Init::ones, Init::zeros}) {
    for (const Form& form : kForms) {
      for (const Shape& shape : {Shape{1}, Shape{17, 33}, Shape{1000, 1001}, Shape{0, 4}}) {
        const ParameterSpec parameter{
            .name = "layers.0.weight", .shape = shape, .init = init, .std = 0.02};
        for (const Cut cut : {Cut::nothing, Cut::master, Cut::both})
          expect_equal(*gpu, host, parameter, layout_of(parameter, form, cut));
      }
    }
  }
}

}  // namespace
}  // namespace octet::training_weights_test
