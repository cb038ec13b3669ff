#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "train/json_lines_file.h"
#include "train/line_clock.h"
#include "train/run_statistics.h"
#include "train/step_report.h"
#include "unit/base/scratch_folder.h"

namespace octet::train_metrics_test {
namespace {

StepReport report(int64_t step) {
  StepReport r;
  r.step = step;
  r.steps = 10;
  r.loss = 1.5f;
  r.grad_norm = 0.25f;
  r.lr = 1e-3;
  r.tokens = 64 * step;
  r.tokens_per_s = 1000;
  r.time_ms = 64;
  r.mem_bytes = 4096;
  r.seconds_left = 75;
  return r;
}

TEST(Metrics, line_has_the_documented_keys) {
  StepReport r = report(3);
  EXPECT_EQ(metrics_json(r),
            R"({"step":3,"loss":1.5,"loss_bits":"3fc00000","grad_norm":0.25,"lr":0.001,)"
            R"("tokens":192,"tokens_per_s":1000.0,"time_ms":64.0,"mem_bytes":4096,"skipped":0,)"
            R"("flagged":0})");
  r.val_loss = 2.0;
  r.val_figures = {{"accuracy", 0.5}};
  r.skipped = true;
  const auto json = nlohmann::json::parse(metrics_json(r));
  EXPECT_EQ(json.at("val_loss"), 2.0);
  EXPECT_EQ(json.at("val_accuracy"), 0.5);
  EXPECT_EQ(json.at("skipped"), 1);
}

TEST(Metrics, loss_that_is_not_finite_stays_json) {
  StepReport r = report(1);
  r.loss = std::numeric_limits<float>::quiet_NaN();
  const auto json = nlohmann::json::parse(metrics_json(r));
  EXPECT_TRUE(json.at("loss").is_null());
  EXPECT_EQ(json.at("loss_bits"), "7fc00000");
}

TEST(Metrics, line_is_read_back_to_the_bit) {
  StepReport r = report(7);
  r.loss = 0.1f;
  r.skipped = true;
  r.val_loss = 1.75;
  r.val_figures = {{"accuracy", 0.5}, {"span.exact", 0.25}};
  const auto read = parse_metrics(metrics_json(r));
  ASSERT_TRUE(read.has_value());
  EXPECT_EQ(metrics_json(*read), metrics_json(r));
  EXPECT_EQ(read->val_figures, r.val_figures);
  r.loss = -std::numeric_limits<float>::infinity();
  EXPECT_EQ(parse_metrics(metrics_json(r))->loss, r.loss);
}

TEST(Metrics, what_is_no_line_is_not_read) {
  for (const char* line : {"", "{", "[]", "{}", R"({"step":"x"})", R"({"step":0})"})
    EXPECT_FALSE(parse_metrics(line).has_value()) << line;
  const auto sparse = parse_metrics(R"({"step":3})");
  ASSERT_TRUE(sparse.has_value());
  EXPECT_TRUE(std::isnan(sparse->loss));
}

TEST(Metrics, file_of_a_resumed_run_keeps_the_steps_before) {
  const test::ScratchFolder folder;
  const std::string path = folder / "metrics.jsonl";
  {
    JsonLinesFile file(posix_files(), path, 0);
    for (int64_t step = 1; step <= 4; ++step) file.append(metrics_json(report(step)));
  }
  {
    JsonLinesFile file(posix_files(), path, 2);
    EXPECT_EQ(posix_files().read_text(path),
              metrics_json(report(1)) + "\n" + metrics_json(report(2)) + "\n");
    file.append(metrics_json(report(3)));
  }
  EXPECT_EQ(posix_files().read_text(path), metrics_json(report(1)) + "\n" +
                                               metrics_json(report(2)) + "\n" +
                                               metrics_json(report(3)) + "\n");
  JsonLinesFile fresh(posix_files(), path, 0);
  EXPECT_EQ(posix_files().read_text(path), "");
}

TEST(Metrics, loss_is_found_without_parsing) {
  for (const float loss : {0.1F, -3e38F, std::numeric_limits<float>::infinity()}) {
    StepReport r = report(123456);
    r.loss = loss;
    r.skipped_tensors = {"a", "b"};
    const auto quick = quick_loss(metrics_json(r));
    ASSERT_TRUE(quick.has_value());
    EXPECT_EQ(quick->step, 123456);
    EXPECT_EQ(quick->loss, loss);
    EXPECT_EQ(parse_metrics(metrics_json(r))->skipped_tensors, r.skipped_tensors);
  }
  const std::string line = metrics_json(report(3));
  for (size_t n = 0; n < line.size(); ++n) EXPECT_FALSE(quick_loss(line.substr(0, n)).has_value());
  for (const int64_t labels : {0, 10}) {
    StepReport report = parse_metrics(line).value();
    report.labels = labels;
    const std::string counted = metrics_json(report);
    EXPECT_EQ(parse_metrics(counted)->has_labels(), labels > 0);
    EXPECT_EQ(quick_loss(counted)->has_labels, labels > 0);
  }
  for (const char* other : {R"({"loss":1,"step":3})", R"({"step":3})", R"({"step":3.5,"loss":1})",
                            R"({"step":3,"loss_bits":"3fc0000"})", R"({"step":x,"loss_bits":""})"})
    EXPECT_FALSE(quick_loss(other).has_value()) << other;
}

// More than is read at a time, with what a kill, an editor or a bad disk may leave between.
TEST(Metrics, long_files_keep_every_good_line_and_no_other) {
  const test::ScratchFolder folder;
  std::string all, kept;
  const std::string junk[] = {"",
                              "{\"step\":5,\"lo",
                              std::string(3'000'000, 'x'),
                              R"({"loss": 1.0, "step": 7})",
                              std::string("\0\0", 2),
                              "[]"};
  for (int64_t step = 1; step <= 30'000; ++step) {
    const std::string line = metrics_json(report(step)) + "\n";
    all += line;
    if (step <= 20'000) kept += line;
    if (step % 5000 != 0) continue;
    const std::string& other = junk[(step / 5000) % std::size(junk)];
    all += other + "\n";
    if (other.starts_with("{\"loss")) kept += other + "\n";  // of an early step, otherwise written
  }
  const std::string path = folder.put("metrics.jsonl", all);
  std::string seen;
  {
    JsonLinesFile file(posix_files(), path, 20'000,
                       [&](std::string_view line) { (seen += line) += '\n'; });
    EXPECT_TRUE(seen == kept);
    file.append(metrics_json(report(20'001)));
  }
  EXPECT_TRUE(posix_files().read_text(path) == kept + metrics_json(report(20'001)) + "\n");
  folder.put("metrics.jsonl", metrics_json(report(1)));  // whole, but for the line's end
  JsonLinesFile file(posix_files(), path, 1);
  EXPECT_EQ(posix_files().read_text(path), metrics_json(report(1)) + "\n");
}

TEST(StepLine, says_what_a_reader_wants_to_know) {
  StepReport r = report(3);
  EXPECT_EQ(step_line(r),
            "step 3/10  loss 1.5000  lr 1.00e-03  |g| 0.25  1000 tokens/s  1:15 left");
  r.step = 10;
  r.val_loss = 1.25;
  EXPECT_EQ(step_line(r),
            "step 10/10  loss 1.5000  lr 1.00e-03  |g| 0.25  1000 tokens/s  validation loss "
            "1.2500");
}

TEST(StepLine, names_what_is_counted_and_what_was_read) {
  StepReport r = report(10);
  r.unit = kPictures;
  r.val_loss = 1.25;
  r.val_amount = "42 of 120 samples";
  EXPECT_EQ(step_line(r),
            "step 10/10  loss 1.5000  lr 1.00e-03  |g| 0.25  1000 pictures/s  validation loss "
            "1.2500 (42 of 120 samples)");
  EXPECT_EQ(parse_metrics(metrics_json(r))->unit, kPictures);
  r.unit = kTokens;
  EXPECT_EQ(metrics_json(r).find("unit"), std::string::npos);
}

TEST(StepTally, counts_the_tokens_that_there_are) {
  StepTally tally;
  EXPECT_FALSE(tally.tokens_per_s().has_value());
  StepReport r = report(1);
  r.tokens = 1'000'000;  // with padding, since the start
  r.tokens_per_s = 300;
  r.time_ms = 1000;
  tally.add(r);
  r.tokens_per_s = 100;
  r.time_ms = 3000;
  tally.add(r);
  EXPECT_DOUBLE_EQ(tally.tokens_per_s().value(), 150);
}

TEST(StepLine, shows_no_sign_of_a_nan) {
  StepReport r = report(10);
  r.loss = r.grad_norm = -std::numeric_limits<float>::quiet_NaN();
  EXPECT_EQ(step_line(r), "step 10/10  loss nan  lr 1.00e-03  |g| nan  1000 tokens/s");
}

StepReport report_of_a_long_run() {
  StepReport r;
  r.step = 1200;
  r.steps = 10000;
  r.loss = 3.4527f;
  r.lr = 1e-3;
  r.grad_norm = 2.16f;
  r.tokens_per_s = 2389.4;
  r.seconds_left = 3600 * 12 + 5 * 60 + 9;
  return r;
}

TEST(StepBar, keeps_what_is_left_of_the_run_within_any_width) {
  const StepReport r = report_of_a_long_run();
  for (const std::string name : {"", "scalify_fp16  "}) {
    for (size_t width = 70; width < 200; ++width) {
      const std::string line = step_bar(r, name, width);
      EXPECT_LE(line.size(), width);
      EXPECT_NE(line.find("12:05:09 left"), std::string::npos) << line;
      EXPECT_NE(line.find("step 1200/10000  loss 3.4527"), std::string::npos) << line;
    }
  }
  EXPECT_EQ(step_bar(r, "", 79),
            "[#         ] step 1200/10000  loss 3.4527  2389 tokens/s  12:05:09 left");
  EXPECT_EQ(step_bar(r, "", 120),
            "[##                  ] step 1200/10000  loss 3.4527  lr 1.00e-03  |g| 2.16  2389 "
            "tokens/s  12:05:09 left");
  EXPECT_EQ(step_bar(r, "", 10).size(), 10u);
}

TEST(LineClock, the_first_step_has_a_line_and_those_at_the_distance) {
  LineClock clock;
  EXPECT_TRUE(clock.is_due(false));
  EXPECT_FALSE(clock.is_due(false));
  EXPECT_TRUE(clock.is_due(true));
  EXPECT_FALSE(clock.is_due(false));
}

TEST(Duration, is_short) {
  EXPECT_EQ(duration_text(42.4), "42 s");
  EXPECT_EQ(duration_text(200), "3:20");
  EXPECT_EQ(duration_text(3723), "1:02:03");
}

TEST(Metrics, energy_is_there_where_it_was_counted) {
  StepReport r = report(3);
  EXPECT_EQ(metrics_json(r).find("joules"), std::string::npos);
  EXPECT_FALSE(parse_metrics(metrics_json(r))->joules);
  r.joules = 12.5;
  EXPECT_EQ(parse_metrics(metrics_json(r))->joules, 12.5);
}

}  // namespace
}  // namespace octet::train_metrics_test
