#include "train/gemm_audit.h"

#include <cstring>

#include "base/error.h"
#include "base/ordered_json.h"
#include "base/philox.h"
#include "ir/print.h"
#include "runtime/edge_statistics.h"
#include "runtime/known_numbers.h"
#include "train/one_node.h"

namespace octet {
namespace {

constexpr int64_t kSide = 16, kBlock = 128;

}  // namespace

std::string audit_text(const AuditDifference& d) {
  const char* const repeats = !d.repeats ? "not tried again"
                              : *d.repeats
                                  ? "the same again: a defective unit, or another algorithm"
                                  : "right when repeated: a bit that flipped";
  return fmt::format(
      "{} of {}: output ({}, {}) of {} x {} x {}: expected {:#x}, got {:#x}; {} of {} outputs "
      "differ; {}; {}",
      enum_name(d.role), d.linear, d.row, d.col, d.m, d.n, d.k, d.expected, d.got, d.n_other,
      d.n_outputs, repeats, d.device);
}

std::string audit_json(int64_t step, const AuditDifference& d) {
  OrderedJson json{{"step", step},
                   {"event", "audit"},
                   {"linear", d.linear},
                   {"role", enum_name(d.role)},
                   {"m", d.m},
                   {"n", d.n},
                   {"k", d.k},
                   {"row", d.row},
                   {"col", d.col},
                   {"expected", fmt::format("{:#x}", d.expected)},
                   {"got", fmt::format("{:#x}", d.got)},
                   {"other", d.n_other},
                   {"outputs", d.n_outputs},
                   {"device", d.device}};
  if (d.repeats) json["repeats"] = *d.repeats;
  return json.dump();
}

GemmAudit::GemmAudit(Arenas& arenas, Device& device, Catalogue& catalogue, const Backend& cpu,
                     uint32_t seed)
    : arenas_(arenas), device_(device), catalogue_(catalogue), cpu_(cpu), seed_(seed) {}

uint64_t GemmAudit::random(uint64_t word) const {
  const RandomStream stream{
      .name = name_hash("audit"), .seed = seed_, .step = static_cast<uint32_t>(step_)};
  return stream.bits(word);
}

StepObserver GemmAudit::observer(int64_t step) {
  step_ = step;
  done_.clear(), drawn_.clear();
  return [this](const Plan& plan, const PlanStep& plan_step, bool before) {
    look(plan, plan_step, before);
  };
}

bool GemmAudit::adds_in_y(const Plan& plan, const Node& node) {
  const ValueId c = node.in(Gemm::c), y = node.out(Gemm::y);
  return c != kNoValue && arenas_.address(plan, c) == arenas_.address(plan, y);
}

const std::vector<GemmAudit::Eligible>& GemmAudit::eligible(const Plan& plan) {
  const auto [entry, is_new] = plans_.try_emplace(&plan);
  if (!is_new) return entry->second;
  for (size_t i = 0; i < plan.steps.size(); ++i) {
    const Node& node = plan.graph.node(plan.steps[i].node);
    const GemmRole role = linear_role(node);
    if (node.op != OpCode::gemm || role == GemmRole::other) continue;
    const auto addend =
        adds_in_y(plan, node) ? SampledGemm::Addend::in_y : SampledGemm::Addend::apart;
    const auto [sample, is_unknown] =
        samples_.try_emplace({print(OneNode(plan.graph, node).graph()), addend});
    if (is_unknown) sample->second = SampledGemm::make(plan.graph, node, kSide, cpu_, addend);
    if (sample->second != nullptr) entry->second.push_back({i, role, sample->second.get()});
  }
  return entry->second;
}

// One of each role that has not been compared in this step.
void GemmAudit::draw(const Plan& plan) {
  drawn_.clear();
  std::map<GemmRole, std::vector<Eligible>> by_role;
  for (const Eligible& one : eligible(plan)) by_role[one.role].push_back(one);
  for (const auto& [role, all] : by_role) {
    if (done_.contains(role)) continue;
    const Eligible& one = all[random(static_cast<uint64_t>(role)) % all.size()];
    drawn_.emplace(one.step, one);
  }
}

ReadOperand GemmAudit::reader(const Plan& plan, const ValueIds& ids) {
  return [this, &plan, &ids](size_t slot, int64_t first, std::span<std::byte> to) {
    device_.copy_out(to.data(), arenas_.address(plan, ids.at(slot)) + first, std::ssize(to));
  };
}

void GemmAudit::look(const Plan& plan, const PlanStep& step, bool before) {
  if (before && &step == plan.steps.data()) draw(plan);
  const auto found = drawn_.find(static_cast<size_t>(&step - plan.steps.data()));
  if (found == drawn_.end()) return;
  const Node& node = plan.graph.node(step.node);
  const Eligible& drawn = found->second;
  if (!before) return compare(plan, node, drawn);
  // An addend may lie where the result will.
  const auto any = [&](int64_t n, uint64_t word) {
    const auto blocks = static_cast<uint64_t>((n - kSide) / kBlock + 1);
    return static_cast<int64_t>(random(word) % blocks) * kBlock;
  };
  const auto role = static_cast<uint64_t>(drawn.role);
  place_ = {any(drawn.sample->rows(), 16 + 2 * role), any(drawn.sample->cols(), 17 + 2 * role)};
  expected_ = drawn.sample->compute(reader(plan, node.operands), place_);
}

void GemmAudit::compare(const Plan& plan, const Node& node, const Eligible& drawn) {
  done_.insert(drawn.role);
  const SampledGemm& sample = *drawn.sample;
  const auto got = sample.read_y(reader(plan, node.results), place_);
  n_outputs_ += kSide * kSide;
  if (got == expected_) return;
  const int64_t width = bytes_of(sample.dtype(), 1);
  AuditDifference d{.linear = gemm_name(node),
                    .role = drawn.role,
                    .m = sample.rows(),
                    .n = sample.cols(),
                    .k = sample.k(),
                    .n_outputs = kSide * kSide,
                    .device = device_.info().name};
  for (int64_t i = kSide * kSide; i-- > 0;) {
    if (bits_at(got.data(), i, width) == bits_at(expected_.data(), i, width)) continue;
    ++d.n_other;
    d.row = place_.row + i / kSide, d.col = place_.col + i % kSide;
    d.expected = bits_at(expected_.data(), i, width), d.got = bits_at(got.data(), i, width);
  }
  d.repeats = repeats(plan, node, drawn, got);
  differences_.push_back(std::move(d));
}

// On a copy of the operands, in memory of its own.
std::optional<bool> GemmAudit::repeats(const Plan& plan, const Node& node, const Eligible& drawn,
                                       const std::vector<std::byte>& got) {
  if (adds_in_y(plan, node)) return std::nullopt;
  try {
    const OneNode one(plan.graph, node);
    BoundGraph alone(one.graph(), device_, catalogue_);
    for (size_t i = 0; i < one.graph().inputs.size(); ++i) {
      const GraphInput& input = one.graph().inputs[i];
      std::vector<std::byte> bytes(static_cast<size_t>(one.graph().type(input.value).n_bytes()));
      reader(plan, node.operands)(one.operands[i], 0, bytes);
      alone.bound.write_input(input.name, bytes.data(), std::ssize(bytes));
    }
    alone.bound.run([](const Plan&, const PlanStep&, bool) {});
    const GraphOutput& output = one.graph().outputs.front();
    std::vector<std::byte> all(static_cast<size_t>(one.graph().type(output.value).n_bytes()));
    alone.bound.read_output(output.name, all.data(), std::ssize(all));
    const auto again = drawn.sample->read_y(
        [&](size_t, int64_t first, std::span<std::byte> to) {
          std::memcpy(to.data(), all.data() + first, to.size());
        },
        place_);
    return again == got;
  } catch (const Error&) {  // no memory for it
    return std::nullopt;
  }
}

}  // namespace octet
