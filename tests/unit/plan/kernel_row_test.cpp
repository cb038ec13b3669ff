#include "plan/kernel_row.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "ir/parse.h"

namespace octet::plan_kernel_row_test {
namespace {

bool yes(const NodeView&) {
  return true;
}
bool is_f32(const NodeView& view) {
  return view.in_is(0, {Dtype::f32});
}
int64_t bytes(const NodeView& view) {
  return view.target.n_threads;
}

const KernelRow kReference{OpCode::exp, "reference", yes, nullptr, {.reference = true}};
const KernelRow kGeneric{OpCode::exp, "generic", yes, nullptr, {.generic = true}};
const KernelRow kSlow{.op = OpCode::exp, .name = "slow", .applies = yes, .factor = 2};
const KernelRow kFast{OpCode::exp, "fast", is_f32, bytes};
const KernelRow kSecond{OpCode::exp, "second", is_f32};
const KernelRow kOther{OpCode::log, "other", yes};

std::string chosen(std::vector<const KernelRow*> rows, std::vector<std::string> without = {},
                   const char* dtype = "f32") {
  const Target target{.n_threads = 3, .rows = rows, .without = std::move(without)};
  const Graph graph = parse_graph(fmt::format(R"(graph "g" phase typed
%0 = input batch "x" : {0}[4]
%1 = exp(%0) : {0}[4] @ forward, "a"
output "y" %1
)",
                                              dtype),
                                  "text");
  const auto choice = choose_row({graph, graph.nodes[0], target});
  if (!choice) return "none";
  return fmt::format("{}, {}", choice->row->name, choice->scratch_bytes);
}

TEST(KernelRow, of_least_cost_is_chosen_and_of_equals_the_first) {
  const std::vector<const KernelRow*> all = {&kReference, &kGeneric, &kSlow,
                                             &kOther,     &kFast,    &kSecond};
  EXPECT_EQ(chosen(all), "fast, 3");
  EXPECT_EQ(chosen(all, {}, "bf16"), "slow, 0");
  EXPECT_EQ(chosen({&kReference, &kGeneric}), "generic, 0");
  EXPECT_EQ(chosen({&kOther}), "none");
}

TEST(KernelRow, that_is_struck_gives_way_to_the_next) {
  const std::vector<const KernelRow*> all = {&kFast, &kSecond, &kGeneric, &kReference};
  EXPECT_EQ(chosen(all, {"exp fast"}), "second, 0");
  EXPECT_EQ(chosen(all, {"exp fast", "exp second", "exp generic"}), "reference, 0");
  EXPECT_EQ(chosen(all, {"log fast"}), "fast, 3");
  EXPECT_EQ(chosen({&kFast}, {"exp fast"}), "none");
}

TEST(Target, says_what_is_assumed_and_struck) {
  Target target{.backend = "cuda", .architecture = "Hopper", .capability = 90, .dnn = "9"};
  EXPECT_EQ(target.text(), "cuda Hopper (9.0), cuDNN 9");
  target.assumed = target.deterministic = true;
  target.ranks = 2;
  target.without = {"rms_norm codes"};
  EXPECT_EQ(target.text(),
            "cuda Hopper (9.0), cuDNN 9, 2 ranks, deterministic, assumed without a device, "
            "without rms_norm codes");
}

}  // namespace
}  // namespace octet::plan_kernel_row_test
