// Profiles of runs whose kernels take a known time.
#include "runtime/profile.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>
#include <set>
#include <thread>

#include "ir/builder.h"
#include "unit/train/host_device.h"

namespace octet::runtime_profile_test {
namespace {

// Kernels that only wait: exp 4 ms and a reference kernel, all else 1 ms.
class SlowCatalogue : public Catalogue {
 public:
  std::optional<KernelChoice> choose(const Graph&, const Node& node) const override {
    return KernelChoice{.name = std::string(op_def(node.op).name) + " \"kernel\"",
                        .scratch_bytes = 0,
                        .reference = node.op == OpCode::exp};
  }
  LaunchFn prepare(const Graph&, const Node& node, const KernelChoice&) override {
    const int ms = node.op == OpCode::exp ? 4 : 1;
    return [ms](const LaunchArgs&) { std::this_thread::sleep_for(std::chrono::milliseconds(ms)); };
  }
};

// A function of four launches: neg, exp, neg, gemm.
class ProfileTest : public testing::Test {
 protected:
  ProfileTest() {
    Graph graph;
    graph.name = "small \xff";
    graph.phase = Phase::typed;
    Builder builder(graph);
    builder.tag = {.layer = 3, .role = Role::backward, .origin = kOrigin};
    ValueId x =
        builder.input(InputKind::batch, "x", {.dtype = Dtype::f32, .shape = {kSize, kSize}});
    for (const OpCode op : {OpCode::neg, OpCode::exp, OpCode::neg}) x = builder.unary(op, x);
    builder.output("y", builder.gemm(x, x, {}));
    Layout layout;
    layout.add_inputs(graph);
    plan_ = make_plan(graph, layout, catalogue_);
    arenas_ = std::make_unique<Arenas>(device_, plan_.arena_bytes);
    bound_ = std::make_unique<BoundPlan>(plan_, catalogue_, *arenas_);
  }

  // Two runs in training step 5, one in step 6.
  Profile three_runs() {
    Profile profile;
    const StepObserver observer = profile.observer();
    for (const int64_t step : {5, 5, 6}) {
      profile.begin_step(step);
      bound_->run(observer);
    }
    return profile;
  }

  static constexpr int64_t kSize = 16;
  static constexpr const char* kOrigin = "a \"module\"\\\n\x01";
  test::HostDevice device_;
  SlowCatalogue catalogue_;
  Plan plan_;
  std::unique_ptr<Arenas> arenas_;
  std::unique_ptr<BoundPlan> bound_;
};

TEST_F(ProfileTest, every_launch_is_an_event_of_its_run) {
  const Profile profile = three_runs();
  EXPECT_EQ(profile.n_train_steps(), 2);
  ASSERT_EQ(profile.runs().size(), 3u);
  ASSERT_EQ(profile.events().size(), 12u);
  for (size_t run = 0; run < 3; ++run) {
    EXPECT_EQ(profile.runs()[run].train_step, run < 2 ? 5 : 6);
    EXPECT_EQ(profile.runs()[run].first_event, 4 * run);
    EXPECT_EQ(profile.runs()[run].end_event, 4 * run + 4);
    for (size_t i = 0; i < 4; ++i) {
      EXPECT_EQ(profile.events()[4 * run + i].plan_step, static_cast<int>(i));
    }
  }
  for (const ProfileEvent& event : profile.events())
    EXPECT_GE(event.ms(), event.node().op == OpCode::exp ? 4.0 : 1.0);
}

TEST_F(ProfileTest, table_sums_to_the_time_of_the_runs) {
  const Profile profile = three_runs();
  const std::vector<ProfileRow> rows = rows_by_kernel(profile);
  ASSERT_EQ(rows.size(), 4u);
  EXPECT_EQ(rows.back().kernel, "(between kernels)");
  // Other programs can delay any kernel, so that the slow one need not be the first.
  EXPECT_TRUE(std::is_sorted(rows.begin(), rows.end() - 1,
                             [](const auto& a, const auto& b) { return a.ms > b.ms; }));
  const auto slow = std::ranges::find(rows, std::string("exp \"kernel\""), &ProfileRow::kernel);
  ASSERT_NE(slow, rows.end());
  EXPECT_EQ(std::ranges::count(rows, true, &ProfileRow::is_reference), 1);
  EXPECT_TRUE(slow->is_reference);
  double ms = 0, share = 0;
  for (const ProfileRow& row : rows) ms += row.ms, share += row.share;
  EXPECT_NEAR(ms, profile.total_ms(), 1e-9);
  EXPECT_NEAR(share, 1, 1e-12);
  EXPECT_GE(rows.back().ms, 0);
  EXPECT_GE(profile.total_ms(), 21);
  EXPECT_NEAR(reference_share(profile), slow->share, 1e-12);
}

TEST_F(ProfileTest, rows_count_launches_bytes_and_flops) {
  const Profile profile = three_runs();
  const Ceilings ceilings{.bytes_per_s = 1e6, .f32_flops_per_s = 1e5, .narrow_flops_per_s = 1};
  for (const ProfileRow& row : rows_by_kernel(profile, ceilings)) {
    const double matrix = kSize * kSize * 4.0;
    if (row.kernel == "neg \"kernel\"") {
      EXPECT_EQ(row.count, 6);
      EXPECT_EQ(row.bytes, 6 * 2 * matrix);
    } else if (row.kernel == "gemm \"kernel\"") {
      EXPECT_EQ(row.count, 3);
      EXPECT_EQ(row.flops, 3 * 2.0 * kSize * kSize * kSize);
      EXPECT_NEAR(row.floor_ms, 1000 * row.flops / 1e5, 1e-6);  // more than its bytes take
    }
  }
}

TEST_F(ProfileTest, trace_is_json_and_covers_each_launch_and_function) {
  const Profile profile = three_runs();
  const auto trace = nlohmann::json::parse(chrome_trace(profile));
  int n_launches = 0;
  double functions_us = 0;
  std::set<int64_t> steps;
  for (const auto& event : trace.at("traceEvents")) {
    if (event.at("ph") != "X") continue;
    EXPECT_GE(event.at("dur").get<double>(), 0);
    if (event.at("cat") == "function") {
      EXPECT_TRUE(event.at("name").get<std::string>().starts_with("small \uFFFD of step "));
      functions_us += event.at("dur").get<double>();
      steps.insert(event.at("args").at("step").get<int64_t>());
      continue;
    }
    ++n_launches;
    const auto& args = event.at("args");
    EXPECT_EQ(event.at("cat"), "backward");
    EXPECT_EQ(args.at("layer"), 3);
    EXPECT_EQ(args.at("origin"), kOrigin);
    EXPECT_GT(args.at("bytes"), 0);
    EXPECT_EQ(args.at("reference"), args.at("op") == "exp");
  }
  EXPECT_EQ(n_launches, 12);
  EXPECT_EQ(steps, (std::set<int64_t>{5, 6}));
  EXPECT_NEAR(functions_us / 1000, profile.total_ms(), 0.01);
}

TEST(FloorSeconds, is_the_longer_of_bytes_and_products_at_the_rate_of_the_type) {
  const Ceilings ceilings{.bytes_per_s = 1e9, .f32_flops_per_s = 1e9, .narrow_flops_per_s = 4e9};
  const auto gemm_seconds = [&](Dtype dtype, int64_t depth) {
    Graph graph;
    graph.phase = Phase::typed;
    Builder builder(graph);
    const ValueId a = builder.input(InputKind::batch, "a", {.dtype = dtype, .shape = {64, depth}});
    const ValueId b = builder.input(InputKind::batch, "b", {.dtype = dtype, .shape = {depth, 64}});
    builder.output("y", builder.gemm(a, b, {}));
    return floor_seconds(graph, graph.nodes.front(), ceilings);
  };
  const double flops = 2.0 * 64 * 64 * 512;
  EXPECT_DOUBLE_EQ(gemm_seconds(Dtype::f32, 512), flops / 1e9);
  EXPECT_DOUBLE_EQ(gemm_seconds(Dtype::fp16, 512), flops / 1e9);
  EXPECT_DOUBLE_EQ(gemm_seconds(Dtype::bf16, 512), flops / 4e9);
  EXPECT_DOUBLE_EQ(gemm_seconds(Dtype::f32, 1), (2 * 64 + 64 * 64) * 4.0 / 1e9);
}

TEST(Profile, is_empty_until_it_watches) {
  const Profile profile;
  EXPECT_EQ(profile.total_ms(), 0);
  EXPECT_EQ(profile.n_train_steps(), 0);
  EXPECT_EQ(reference_share(profile), 0);
  EXPECT_TRUE(nlohmann::json::parse(chrome_trace(profile)).contains("traceEvents"));
}

}  // namespace
}  // namespace octet::runtime_profile_test
