// load_state and store_state on the GPU against the CPU's scalar formulas: all bits, but for one
// code in a thousand where powers of the range expansion are fast.
#include "backends/cpu/common/isa.h"
#include "gpu/parity/gpu.h"
#include "ir/builder.h"
#include "plan/plan.h"
#include "runtime/executor.h"
#include "unit/cpu/adamw_support.h"

namespace octet::cpu {
namespace {

struct StateCase {
  const char* name;
  Dtype dtype;
  StateAttrs attrs = {};
  bool has_remainder = false;
};
const StateCase kStates[] = {
    {"f32", Dtype::f32},
    {"bf16", Dtype::bf16},
    {"bf16_sr", Dtype::bf16, {.stochastic = true, .stream = 5, .seed = 3}},
    {"bf16_sr shard", Dtype::bf16, {.stochastic = true, .stream = 5, .seed = 3, .first = 512}},
    {"bf16 remainder", Dtype::bf16, {}, true},
    {"e4m3", Dtype::e4m3},
    {"e4m3_sr", Dtype::e4m3, {.stochastic = true, .stream = 7, .first = 256}},
    {"e4m3+x exact", Dtype::e4m3, {.expand = true, .math = PowerMath::exact}},
    {"e4m3+x", Dtype::e4m3, {.expand = true}},
    {"e5m2", Dtype::e5m2},
    {"hif8+x exact", Dtype::hif8, {.expand = true, .math = PowerMath::exact}},
    {"de8s exact", Dtype::de8s, {.math = PowerMath::exact}},
};

// A state that is stored and read again.
class StateRun {
 public:
  StateRun(const StateCase& c, int64_t n, octet::Backend& backend)
      : n_(n),
        backend_(backend),
        plan_(make(c)),
        arenas_(*backend.device, plan_.arena_bytes),
        bound_(plan_, *backend.catalogue, arenas_) {
    for (const GraphInput& input : plan_.graph.inputs)
      backend.device->fill_zero(bound_.input(input.name), plan_.graph.type(input.value).n_bytes());
  }

  void step(const std::vector<float>& x, uint32_t attempt, uint8_t skip) {
    bound_.write_input("x", x.data(), n_ * 4);
    bound_.write_input("attempt", &attempt, 4);
    bound_.write_input("skip", &skip, 1);
    bound_.run();
  }
  std::vector<std::byte> bytes(const std::string& input) const {
    if (!bound_.has_input(input)) return {};
    const int64_t n = plan_.graph.type(plan_.graph.find_input(input)->value).n_bytes();
    std::vector<std::byte> result(static_cast<size_t>(n));
    arenas_.device().copy_out(result.data(), bound_.input(input), n);
    return result;
  }
  std::vector<float> read_again() const {
    std::vector<float> y(static_cast<size_t>(n_));
    bound_.read_output("y", y.data(), n_ * 4);
    return y;
  }

 private:
  Plan make(const StateCase& c) const {
    Graph graph;
    graph.phase = Phase::typed;
    Builder b(graph);
    const ValueId x = b.input(InputKind::batch, "x", {Dtype::f32, {n_}});
    const ValueId skip = b.input(InputKind::batch, "skip", {Dtype::boolean, {}});
    const ValueId attempt = b.input(InputKind::step_scalar, "attempt", {Dtype::u32, {}});
    TensorType type{.dtype = c.dtype, .shape = {n_}};
    if (is_quantized(c.dtype))
      type.granularity = {.kind = Granularity::Kind::run, .size = 128, .scale = Dtype::u32};
    const TensorType rest_type = c.has_remainder ? TensorType{Dtype::i16, {n_}} : scale_type(type);
    const ValueId old = b.input(InputKind::state, "state", type);
    const ValueId rest =
        rest_type == absent_type() ? kNoValue : b.input(InputKind::state, "rest", rest_type);
    const ValueIds next = b.emit(OpCode::store_state, c.attrs, {x, skip, old, attempt, rest});
    b.next(old, next[StoreState::y]);
    if (rest != kNoValue) b.next(rest, next[StoreState::rest]);
    ValueIds read = next;
    read.resize(2, kNoValue);
    b.output("y", b.emit1(OpCode::load_state, c.attrs, read));
    Layout layout;
    layout.add_inputs(graph);
    return make_plan(graph, layout, *backend_.catalogue);
  }

  int64_t n_;
  octet::Backend& backend_;
  Plan plan_;
  mutable Arenas arenas_;
  mutable BoundPlan bound_;
};

int64_t n_unequal(const std::vector<std::byte>& a, const std::vector<std::byte>& b) {
  int64_t n = std::abs(std::ssize(a) - std::ssize(b));
  for (size_t i = 0; i < std::min(a.size(), b.size()); ++i) n += a[i] != b[i] ? 1 : 0;
  return n;
}

TEST(gpu_update, loads_and_stores_states_as_the_scalar_formulas_do) {
  OCTET_GPU_OR_SKIP(gpu);
  static cpu::Backend scalar = make_backend(1, Isa::scalar);
  static cpu::Backend fast = make_backend(2, detect_isa());
  for (const StateCase& c : kStates) {
    const bool is_near = c.attrs.expand && c.attrs.math == PowerMath::fast;
    for (const int64_t n : {1, 128, 1000, 70001}) {
      StateRun want(c, n, scalar), on_cpu(c, n, fast), on_gpu(c, n, *gpu);
      for (uint32_t t = 1; t <= 3; ++t) {
        std::vector<float> x = test_gradient(n, t);
        if (t == 2) std::fill(x.begin(), x.begin() + std::min<int64_t>(n, 200), 0.0F);
        for (StateRun* run : {&want, &on_cpu, &on_gpu}) run->step(x, t, t == 3 ? 1 : 0);
        for (const StateRun* run : {&on_cpu, &on_gpu}) {
          for (const char* input : {"state", "rest"}) {
            const int64_t most = is_near ? 1 + n / 1000 : 0;
            EXPECT_LE(n_unequal(run->bytes(input), want.bytes(input)), most)
                << c.name << " " << input << " of " << n << " at step " << t;
          }
          if (!is_near) {
            EXPECT_EQ(run->read_again(), want.read_again()) << c.name << " " << n;
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace octet::cpu
