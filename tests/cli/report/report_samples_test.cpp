// octet report: texts that models wrote while they were trained.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cli/report/report_runs.h"

namespace octet::report_samples_test {
namespace {

using test::page;
using test::ScratchFolder;
using test::script_data;
using test::write_run;
using testing::HasSubstr;
using testing::Not;

std::string sample_at(int step, const std::string& prompt, const std::string& text,
                      const std::string& stop = "token") {
  return nlohmann::ordered_json{{"step", step}, {"prompt", prompt}, {"text", text}, {"stop", stop}}
             .dump() +
         "\n";
}

TEST(ReportSamples, are_a_table_over_steps) {
  const ScratchFolder folder;
  const std::string runs = write_run(folder, "a") + " " + write_run(folder, "b");
  folder.put("b/samples.jsonl", sample_at(10, "Once", " upon") + sample_at(10, "<b>", "x\ny") +
                                    sample_at(20, "Once", " a time", "length") +
                                    sample_at(20, "Once", " more") + R"({"step":30,"prompt":)");
  ASSERT_EQ(test::report(folder, runs).code, 0);
  const nlohmann::json expected = {
      {"shown", 4},
      {"of", 4},
      {"runs",
       {{{"run", 1},
         {"prompts", {"Once", "<b>", "Once"}},
         {"rows",
          {{{"step", 10}, {"texts", {" upon", "x\ny"}}},
           {{"step", 20}, {"texts", {" a time ...", nullptr, " more"}}}}}}}}};
  EXPECT_EQ(script_data(page(folder)).at("samples"), expected);
  const std::string html = page(folder);
  EXPECT_THAT(html, HasSubstr("<h2>Samples</h2>"));
  EXPECT_THAT(html, HasSubstr("<td>10</td><td>&#60;b&#62;</td><td>x y</td>"));
  EXPECT_THAT(html, HasSubstr("<td>20</td><td>Once</td><td> a time ...</td>"));
}

TEST(ReportSamples, as_csv_are_a_line_a_text) {
  const ScratchFolder folder;
  const std::string run = write_run(folder, "a");
  test::write_config(folder, "a", {"recipe=coat", "train.seed=7"});
  folder.put("a/samples.jsonl", sample_at(10, "a, b", "x\ny", "length"));
  const std::string csv = folder / "samples.csv";
  const test::Outcome outcome = test::program(folder, "report " + run + " --samples " + csv);
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_EQ(posix_files().read_text(csv), "run,recipe,seed,step,prompt,text,stop\n" +
                                              (folder / "a") +
                                              ",coat,7,10,\"a, b\",\"x\ny\",length\n");
  EXPECT_THAT(outcome.err, Not(HasSubstr("report.html")));
}

TEST(ReportSamples, of_the_last_steps_alone_stand_on_a_page_of_300_kb) {
  const ScratchFolder folder;
  std::string runs;
  for (int run = 0; run < 6; ++run) {
    const std::string name = "run-" + std::to_string(run);
    runs += write_run(folder, name, 300, [](nlohmann::json& line) {
      const double step = line.at("step");
      line["loss"] = 3 + std::sin(step), line["grad_norm"] = 1.5 + std::sin(2 * step);
      line["tokens_per_s"] = 9000 + 3000 * std::sin(3 * step);
    });
    std::string lines;
    for (int step = 1; step <= 300; ++step)
      lines += sample_at(step, "Once", std::string(run == 0 ? 300 : 40, 'x') + "\u00e4<");
    folder.put(name + "/samples.jsonl", lines);
    runs += " ";
  }
  ASSERT_EQ(test::report(folder, runs).code, 0);
  const std::string html = page(folder);
  EXPECT_LT(html.size(), 300'000u);
  EXPECT_GT(html.size(), 270'000u);
  const nlohmann::json samples = script_data(html).at("samples");
  EXPECT_EQ(samples.at("of"), 1800);
  const size_t n_steps = samples.at("runs")[0].at("rows").size();
  EXPECT_EQ(samples.at("shown"), 6 * n_steps);
  EXPECT_GT(n_steps, 5u);
  for (const auto& run : samples.at("runs")) {
    EXPECT_EQ(run.at("rows").size(), n_steps);
    EXPECT_EQ(run.at("rows").back().at("step"), 300);
  }
  EXPECT_THAT(html, HasSubstr("<h2>Samples: the last " + std::to_string(6 * n_steps) + " of 1800"));
}

TEST(ReportSamples, of_runs_without_any_are_not_there) {
  const ScratchFolder folder;
  ASSERT_EQ(test::report(folder, write_run(folder, "a")).code, 0);
  EXPECT_EQ(script_data(page(folder)).at("samples").at("shown"), 0);
  EXPECT_THAT(page(folder), Not(HasSubstr("<h2>Samples")));
}

}  // namespace
}  // namespace octet::report_samples_test
