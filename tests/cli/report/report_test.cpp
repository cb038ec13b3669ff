// octet report: the page as text, from runs written here by hand.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <regex>
#include <set>

#include "cli/report/report_runs.h"

namespace octet::report_test {
namespace {

using test::Outcome;
using test::page;
using test::program;
using test::report;
using test::ScratchFolder;
using test::script_data;
using test::write_run;
using testing::HasSubstr;
using testing::Not;

// The page without what its <script> and <style> elements hold, each of which ends where a browser
// takes it to end.
std::string without_scripts(std::string html) {
  for (const std::string name : {"script", "style"}) {
    for (size_t at = 0; (at = html.find("<" + name, at)) != html.npos; ++at) {
      const size_t begin = html.find('>', at) + 1;
      html.erase(begin, html.find("</" + name, begin) - begin);
    }
  }
  return html;
}

// Every element is closed in the right order.
void expect_balanced(const std::string& page) {
  const std::string html = without_scripts(page);
  const std::vector<std::string> empty = {"meta", "input", "!DOCTYPE"};
  std::vector<std::string> open;
  const std::regex tag("<(/?)([!a-zA-Z0-9]+)([^<>]*)>");
  for (std::sregex_iterator it(html.begin(), html.end(), tag), end; it != end; ++it) {
    const std::string name = (*it)[2];
    const std::string rest = (*it)[3];
    if ((*it)[1] == "/") {
      ASSERT_FALSE(open.empty()) << name;
      ASSERT_EQ(open.back(), name);
      open.pop_back();
    } else if (!rest.ends_with("/") && std::find(empty.begin(), empty.end(), name) == empty.end()) {
      open.push_back(name);
    }
  }
  EXPECT_THAT(open, testing::IsEmpty());
}

size_t count(const std::string& text, const std::string& what) {
  size_t n = 0;
  for (size_t at = text.find(what); at != text.npos; at = text.find(what, at + 1)) ++n;
  return n;
}

TEST(Report, needs_nothing_but_itself_and_has_all_curves) {
  const ScratchFolder folder;
  const Outcome outcome = report(folder, write_run(folder, "a") + " " + write_run(folder, "b"));
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  const std::string html = page(folder);
  for (const char* outside : {"http:", "https:", "src=", "href=", "url(", "@import"})
    EXPECT_THAT(without_scripts(html), Not(HasSubstr(outside)));
  EXPECT_THAT(html, HasSubstr("content=\"default-src 'none'; img-src data:; style-src "
                              "'unsafe-inline'; script-src 'unsafe-inline'\""));
  EXPECT_THAT(html, HasSubstr("prefers-color-scheme: dark"));
  const nlohmann::json runs = script_data(html).at("runs");
  ASSERT_EQ(runs.size(), 2u);
  for (const nlohmann::json& run : runs) {
    for (const char* metric : {"loss", "val_loss"})
      EXPECT_EQ(run.at("curves").at(metric).at("y").size(), 30u) << metric;
    for (const char* constant : {"grad_norm", "lr", "tokens_per_s", "planned_bytes"})
      EXPECT_TRUE(run.at("curves").at(constant).at("y").is_number()) << constant;
  }
  expect_balanced(html);
}

TEST(Report, carries_the_chart_library_with_its_licence_and_says_what_draws_it) {
  const ScratchFolder folder;
  ASSERT_EQ(report(folder, write_run(folder, "a")).code, 0);
  const std::string html = page(folder);
  const size_t licence = html.find("Permission is hereby granted, free of charge");
  const size_t library = html.find(".Dygraph=t()");
  EXPECT_THAT(html, HasSubstr("Dan Vanderkam"));
  EXPECT_LT(licence, library);
  EXPECT_LT(library, html.find("new Dygraph("));
  EXPECT_LT(html.find("new Dygraph("), html.npos);
  EXPECT_THAT(html, Not(HasSubstr("sourceMappingURL")));
  EXPECT_THAT(without_scripts(html),
              HasSubstr("The charts are drawn by JavaScript, which is off here."));
}

TEST(Report, curves_are_the_steps_and_their_values) {
  const ScratchFolder folder;
  ASSERT_EQ(report(folder, write_run(folder, "a", 3)).code, 0);
  const nlohmann::json run = script_data(page(folder))["runs"][0];
  EXPECT_EQ(run.at("axes"), (nlohmann::json{{"step", {1, 2, 3}},
                                            {"tokens", {64, 128, 192}},
                                            {"seconds", {0.064, 0.128, 0.192}}}));
  const nlohmann::json& curves = run.at("curves");
  EXPECT_EQ(curves.at("loss"), (nlohmann::json{{"y", {5.0, 2.5, 1.66667}}}));
  EXPECT_EQ(curves.at("val_loss"), (nlohmann::json{{"y", {4.0, 2.0, 1.33333}}}));
  EXPECT_EQ(curves.at("planned_bytes"), (nlohmann::json{{"y", 3145730}}));
}

TEST(Report, many_steps_are_thinned_to_means_within_bands) {
  const ScratchFolder folder;
  const std::string run = write_run(folder, "a", 16'800, [](nlohmann::json& line) {
    line["loss"] = line.at("step").get<int>() % 20 == 0 ? 12.0 : 2.0;
  });
  ASSERT_EQ(report(folder, run).code, 0);
  const std::string html = page(folder);
  const nlohmann::json data = script_data(html)["runs"][0];
  const nlohmann::json& curve = data["curves"]["loss"];
  ASSERT_EQ(curve["y"].size(), 840u);
  for (size_t i = 0; i < 840; ++i) {
    EXPECT_NEAR(data["axes"]["step"][i].get<double>(), 20.0 * static_cast<double>(i) + 10.5, 1);
    EXPECT_EQ(curve["low"][i], 2.0);
    EXPECT_EQ(curve["y"][i], 2.5);
    EXPECT_EQ(curve["high"][i], 12.0);
  }
}

// Every value has all its digits, as those of real runs have.
std::string write_rough_run(const ScratchFolder& folder, const std::string& name, int n) {
  return write_run(folder, name, n, [](nlohmann::json& line) {
    const double step = line.at("step");
    line["loss"] = 3 + std::sin(step), line["grad_norm"] = 1.5 + std::sin(2 * step);
    line["lr"] = 1e-3 * (1 + std::cos(step / 300)), line["time_ms"] = 50 + std::sin(3 * step);
    line["tokens_per_s"] = 9000 + 3000 * std::sin(3 * step);
    if (line.at("step").get<int>() % 30 != 0) line.erase("val_loss");
  });
}

class Weight : public testing::TestWithParam<std::pair<int, int>> {};  // runs, steps

TEST_P(Weight, of_a_page_is_at_most_300_kb) {
  const ScratchFolder folder;
  std::string runs;
  for (int run = 0; run < GetParam().first; ++run)
    runs += write_rough_run(folder, "run-" + std::to_string(run), GetParam().second) + " ";
  ASSERT_EQ(report(folder, runs).code, 0);
  EXPECT_LT(page(folder).size(), 300'000u);
}

INSTANTIATE_TEST_SUITE_P(pages, Weight,
                         testing::Values(std::pair(6, 300), std::pair(6, 5000), std::pair(1, 2100),
                                         std::pair(1, 20'000)));

TEST(Report, without_javascript_tables_say_the_same) {
  const ScratchFolder folder;
  const std::string runs = write_run(folder, "a<b") + " " + write_run(folder, "c");
  test::write_config(folder, "a<b", {"optim.lr=0.25"});
  test::write_config(folder, "c", {"optim.lr=0.125"});
  ASSERT_EQ(report(folder, runs).code, 0);
  const std::string html = page(folder);
  const size_t begin = html.find("<noscript>");
  const std::string tables = html.substr(begin, html.find("</noscript>") - begin);
  for (const char* text : {"<td>0.1333</td>", "a&#60;b</td><td>bf16</td><td>30</td>",
                           "<tr><td>optim.lr</td><td>0.25</td><td>0.125</td></tr>"})
    EXPECT_THAT(tables, HasSubstr(text));
}

TEST(Report, runs_that_differ_in_their_seed_are_one_group_and_labels_tell_runs_apart) {
  const ScratchFolder folder;
  std::string runs;
  for (const auto& [name, sets] : std::vector<std::pair<std::string, std::vector<std::string>>>{
           {"x/a", {"recipe=coat", "train.seed=1", "out=x/a"}},
           {"x/b", {"recipe=coat", "train.seed=2", "out=x/b"}},
           {"y/a", {"recipe=bf16", "out=y/a"}},
           {"z", {"recipe=coat", "optim.lr=0.5"}},
           {"again", {"recipe=coat", "train.seed=1"}},
           {"unknown", {}}}) {
    runs += write_run(folder, name, 3) + " ";
    if (!sets.empty()) test::write_config(folder, name, sets);
  }
  ASSERT_EQ(report(folder, runs).code, 0);
  const nlohmann::json data = script_data(page(folder));
  nlohmann::json groups, labels;
  for (const nlohmann::json& group : data.at("groups")) groups.push_back(group.at("runs"));
  for (const nlohmann::json& run : data.at("runs")) labels.push_back(run.at("label"));
  EXPECT_EQ(groups, (nlohmann::json{{0, 1}, {2}, {3}, {4}, {5}}));
  EXPECT_EQ(data.at("baseline"), 1);
  EXPECT_EQ(data.at("groups")[1].at("label"), "bf16");
  EXPECT_EQ(labels[2], "bf16 \u00b7 y/a");
  EXPECT_EQ(labels[5], folder / "unknown");
  std::set<std::string> distinct(labels.begin(), labels.end());
  EXPECT_EQ(distinct.size(), 6u);
  for (const size_t run : {0, 1, 3, 4}) EXPECT_THAT(labels[run], testing::StartsWith("coat, "));
  EXPECT_THAT(labels[0], testing::EndsWith(", seed 1"));
  EXPECT_THAT(labels[3], HasSubstr("optim.lr 0.5"));
}

TEST(Report, takes_ended_lines_alone) {
  const ScratchFolder folder;
  const std::string run = write_run(folder, "a", 2);
  folder.put("a/metrics.jsonl",
             posix_files().read_text(folder / "a/metrics.jsonl") + "{\"step\": 3, \"loss\": 1}");
  ASSERT_EQ(report(folder, run).code, 0);
  EXPECT_EQ(script_data(page(folder))["runs"][0].at("steps"), 2);
}

TEST(Report, csv_has_a_line_a_step_and_no_page_unless_asked) {
  const ScratchFolder folder;
  const std::string runs =
      write_run(folder, "a", 2) + " " + write_run(folder, "b,c", 1, [](nlohmann::json& line) {
        line["loss"] = nullptr;
        line.erase("val_loss");
        line["unit"] = "pictures";
      });
  test::write_config(folder, "a", {"recipe=coat", "train.seed=7"});
  const Outcome outcome =
      test::program(folder, "report " + runs + " --csv " + (folder / "steps.csv"));
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  const std::string a = folder / "a";
  EXPECT_EQ(posix_files().read_text(folder / "steps.csv"),
            "run,recipe,seed,step,tokens,unit,seconds,loss,val_loss,grad_norm,lr,tokens_per_s,"
            "planned_bytes,skipped\n" +
                a + ",coat,7,1,64,tokens,0.064,5,4,1,0.001,1000,3145728,0\n" + a +
                ",coat,7,2,128,tokens,0.128,2.5,2,1,0.001,1000,3145728,0\n\"" + (folder / "b,c") +
                "\",unknown,,1,64,pictures,0.064,,,1,0.001,1000,3145728,0\n");
  EXPECT_FALSE(posix_files().exists("report.html"));
}

class Hostile : public testing::TestWithParam<std::string> {};

// In the name of a run and in the text of an evaluation.
TEST_P(Hostile, text_is_never_markup_or_script) {
  const ScratchFolder folder;
  const std::string run = write_run(folder, GetParam());
  folder.put(GetParam() + "/evaluations.jsonl",
             nlohmann::json{{"step", 1}, {"task", GetParam()}, {"value", 1.5}}.dump(
                 -1, ' ', false, nlohmann::json::error_handler_t::replace) +
                 "\n");
  ASSERT_EQ(report(folder, run + " " + write_run(folder, "plain")).code, 0);
  const std::string html = page(folder);
  expect_balanced(html);
  EXPECT_EQ(count(html, "<script"), 3u);
  EXPECT_EQ(count(html, "</script"), 3u);
  EXPECT_EQ(count(html, "<!--"), 0u);
  const std::string text = without_scripts(html);
  for (const char* markup : {"<script>alert", "<img", "<br>", "onerror=\""})
    EXPECT_THAT(text, Not(HasSubstr(markup)));
  const nlohmann::json data = script_data(html);
  std::string expected = folder / GetParam();
  if (expected.ends_with('\xff')) expected.replace(expected.size() - 1, 1, "\uFFFD");
  EXPECT_EQ(data.at("runs").at(0).at("name"), expected);
  EXPECT_EQ(data.at("evaluations").at("rows").size(), 1u);
  const size_t begin = html.find("id=\"data\">");
  for (const char ch : html.substr(begin, html.find("</script", begin) - begin))
    ASSERT_TRUE(0x20 <= ch && ch < 0x7F) << "expected ASCII in the script";
}

INSTANTIATE_TEST_SUITE_P(names, Hostile,
                         testing::Values("<script>alert(1)<br> & \"q\"",
                                         "</script><script>alert(1)</script>",
                                         "</ScRiPt ><img src=x onerror=alert(1)>", "<!--<script>",
                                         "a\nb\tc", "\u2028\u2029", "\";alert(1);/*", "\\\"",
                                         "${alert(1)}`", "]]>", "&lt;&#x3c;", "\xff"));

TEST(Report, values_that_are_not_finite_leave_gaps_and_marks) {
  const ScratchFolder folder;
  const std::string run = write_run(folder, "a", 40, [](nlohmann::json& line) {
    const int step = line.at("step");
    if (step > 10 && step < 20) line["loss"] = line["grad_norm"] = nullptr;
    if (step == 30) line["grad_norm"] = 1e30;
  });
  ASSERT_EQ(report(folder, run).code, 0);
  const nlohmann::json curves = script_data(page(folder))["runs"][0].at("curves");
  for (const char* metric : {"loss", "grad_norm"}) {
    const nlohmann::json& curve = curves[metric];
    EXPECT_EQ(curve["gaps"], (nlohmann::json{11, 12, 13, 14, 15, 16, 17, 18, 19}));
    for (int step = 1; step <= 40; ++step)
      EXPECT_EQ(curve["y"][static_cast<size_t>(step - 1)].is_null(), step > 10 && step < 20);
  }
}

class Odd : public testing::TestWithParam<const char*> {};

// One step, one value again and again, nothing finite at all, negative values, keys missing.
TEST_P(Odd, runs_have_a_page_too) {
  const ScratchFolder folder;
  folder.put("run/metrics.jsonl", std::string(GetParam()) + "\n{\"step\": 2, \"lo");
  const Outcome outcome = report(folder, folder / "run");
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  const std::string html = page(folder);
  expect_balanced(html);
  EXPECT_LT(html.size(), 200'000u);
  for (const char* bad : {"=\"nan", "=\"inf", "=\"-inf", "-nan", ">nan"})
    EXPECT_THAT(without_scripts(html), Not(HasSubstr(bad)));
  for (const nlohmann::json& curve : script_data(html)["runs"][0].at("curves")) {
    for (const nlohmann::json& y : curve["y"])
      EXPECT_TRUE(y.is_null() || std::abs(y.get<double>()) <= 1e250) << y;
  }
}

INSTANTIATE_TEST_SUITE_P(lines, Odd,
                         testing::Values(R"({"step":1,"loss":2.0,"grad_norm":0,"lr":0})",
                                         "{\"step\":1,\"loss\":1}\n{\"step\":9,\"loss\":1}",
                                         R"({"step":1,"loss":null,"grad_norm":null})",
                                         "{\"step\":1,\"loss\":-5}\n{\"step\":1,\"loss\":1e308}",
                                         R"({"step":1000000000000})",
                                         R"({"step":8999999999999999,"loss":1})",
                                         "{\"step\":8999999999999998,\"loss\":1}\n"
                                         "{\"step\":8999999999999999,\"loss\":1}",
                                         "{\"step\":1,\"val_loss\":2.5}\n"
                                         "{\"step\":2,\"val_loss\":2.5000000000000004}",
                                         "{\"step\":1,\"val_loss\":1.7e308,\"lr\":1.7e308}\n"
                                         "{\"step\":2,\"val_loss\":-1.7e308,\"lr\":-1.7e308}",
                                         "{\"step\":1,\"val_loss\":5e-324,\"lr\":5e-324}\n"
                                         "{\"step\":2,\"val_loss\":0,\"lr\":1e-323}",
                                         "{\"step\":1,\"grad_norm\":-3}\n"
                                         "{\"step\":2,\"grad_norm\":1e-45}\n"
                                         "{\"step\":3,\"grad_norm\":3e38}"));

TEST(Report, says_what_differs_between_configurations_and_nothing_else) {
  const ScratchFolder folder;
  const std::string runs = write_run(folder, "a") + " " + write_run(folder, "b");
  test::write_config(folder, "a", {"optim.lr=0.25"});
  test::write_config(folder, "b", {"optim.lr=0.125"});
  ASSERT_EQ(report(folder, runs).code, 0);
  EXPECT_EQ(script_data(page(folder)).at("differences"),
            (nlohmann::json{{{"key", "optim.lr"}, {"values", {"0.25", "0.125"}}}}));
}

TEST(Report, sums_up_in_json) {
  const ScratchFolder folder;
  const std::string run = write_run(folder, "a", 30, [](nlohmann::json& line) {
    if (line.at("step") == 7) line["skipped"] = 1, line["loss"] = nullptr, line["val_loss"] = 0.05;
  });
  const Outcome outcome = report(folder, run + " --json");
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  const auto rows = nlohmann::json::parse(outcome.out);
  ASSERT_EQ(rows.size(), 1u);
  EXPECT_EQ(rows[0].at("steps"), 30);
  EXPECT_EQ(rows[0].at("skipped"), 1);
  EXPECT_EQ(rows[0].at("best_val_loss"), 0.05);
  EXPECT_NEAR(rows[0].at("val_loss").get<double>(), 4.0 / 30, 1e-4);
  EXPECT_EQ(rows[0].at("planned_bytes"), 3 << 20);
  const std::string still =
      write_run(folder, "b", 1, [](nlohmann::json& line) { line["time_ms"] = 0; });
  EXPECT_TRUE(nlohmann::json::parse(report(folder, still + " --json").out)
                  .at(0)
                  .at("tokens_per_s")
                  .is_null());
}

// Ten steps of 64 tokens, the energy of eight of which was counted.
TEST(Report, tells_tokens_a_joule_where_energy_was_counted) {
  const ScratchFolder folder;
  const std::string run = write_run(folder, "a", 10, [](nlohmann::json& line) {
    if (line.at("step") == 3 || line.at("step") == 8) line["joules"] = 16.0;
  });
  const Outcome outcome = report(folder, run + " " + write_run(folder, "b") + " --json");
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  const auto rows = nlohmann::json::parse(outcome.out);
  EXPECT_EQ(rows.at(0).at("per_joule"), 16);
  EXPECT_EQ(rows.at(1).at("per_joule"), nullptr);
  const auto runs = script_data(page(folder)).at("runs");
  EXPECT_EQ(runs.at(0).at("tokens_per_joule"), 16);
  EXPECT_FALSE(runs.at(1).contains("tokens_per_joule"));
}

TEST(Report, of_what_is_no_run_is_one_line_and_leaves_no_page) {
  const ScratchFolder folder;
  const Outcome outcome = report(folder, folder / "nowhere");
  EXPECT_EQ(outcome.code, 3);
  EXPECT_EQ(outcome.err, "octet: [report] '" + (folder / "nowhere") +
                             "': expected a run's folder, with metrics.jsonl, got nothing\n");
  EXPECT_FALSE(posix_files().exists(folder / "page.html"));
  folder.put("run/config.yaml", "");
  EXPECT_THAT(report(folder, folder / "run").err, HasSubstr("got a folder without it"));
  EXPECT_THAT(report(folder, folder / "run/config.yaml").err, HasSubstr("got a file"));
}

// Twice the same run would be two seeds without a difference.
TEST(Report, a_run_that_is_named_twice_counts_once) {
  const ScratchFolder folder;
  const std::string run = write_run(folder, "a", 3);
  const Outcome twice = report(folder, run + " " + run + "/ " + run + "/metrics.jsonl --json");
  ASSERT_EQ(twice.code, 0);
  EXPECT_EQ(twice.out, report(folder, run + " --json").out);
  EXPECT_THAT(twice.err, HasSubstr("named twice and counts once"));
}

TEST(Report, outputs_have_a_name_in_a_folder_that_is_there) {
  const ScratchFolder folder;
  const std::string run = write_run(folder, "a", 3);
  EXPECT_EQ(program(folder, "report " + run + " --csv -").err,
            "octet: [report] --csv: expected a file's name, got '-' (/dev/stdout is standard "
            "output)\n");
  EXPECT_EQ(program(folder, "report " + run + " --out none/page.html").err,
            "octet: [report] --out: expected a name in a folder that is there, got "
            "'none/page.html'\n");
}

TEST(Report, a_runs_file_of_metrics_stands_for_the_run) {
  const ScratchFolder folder;
  const std::string run = write_run(folder, "a", 3);
  const Outcome by_file = report(folder, run + "/metrics.jsonl --json");
  ASSERT_EQ(by_file.code, 0) << by_file.err;
  EXPECT_EQ(by_file.out, report(folder, run + " --json").out);
}

std::string edge_line(int step, int layer, const char* edge, double rms) {
  return nlohmann::json{{"step", step},   {"event", "edge"},   {"edge", edge},
                        {"layer", layer}, {"role", "forward"}, {"dtype", "e4m3"},
                        {"elements", 64}, {"rms", rms},        {"amax", 4 * rms},
                        {"zeros", 0.25},  {"saturated", 0.0},  {"scale", 1.0}}
             .dump() +
         "\n";
}

TEST(Report, telemetry_is_a_heat_map_of_layers_by_steps) {
  const ScratchFolder folder;
  const std::string run = write_run(folder, "run");
  std::string lines;
  for (const int step : {1, 10, 20}) {
    lines += edge_line(step, 0, "layers.0.q_proj.x", 1);
    lines += edge_line(step, 0, "layers.0.<b>.x", step == 10 ? 0x1p-9 : 1);
    lines += edge_line(step, 1, "layers.1.q_proj.x", 2);
  }
  folder.put("run/telemetry.jsonl", lines);
  ASSERT_EQ(report(folder, run).code, 0);
  const nlohmann::json heat = script_data(page(folder))["runs"][0].at("heat");
  ASSERT_EQ(heat.size(), 6u);
  for (const nlohmann::json& cell : heat) {
    const bool is_outside = cell.at("layer") == 0 && cell.at("step") == 10;
    EXPECT_EQ(cell.at("rescale"), is_outside ? 10 : 0);
    EXPECT_EQ(cell.at("zeros"), 0.25);
  }
  EXPECT_EQ(heat[2].at("edge"), "layers.0.<b>.x");
  EXPECT_EQ(heat[2].at("dtype"), "e4m3");
}

TEST(Report, many_samples_are_thinned_and_no_sample_is_no_heat_map) {
  const ScratchFolder folder;
  const std::string run = write_run(folder, "run");
  ASSERT_EQ(report(folder, run).code, 0);
  EXPECT_EQ(script_data(page(folder))["runs"][0].at("heat"), nlohmann::json::array());
  std::string lines;
  for (int step = 1; step <= 5000; ++step) lines += edge_line(step, 0, "layers.0.q_proj.x", 1);
  folder.put("run/telemetry.jsonl", lines);
  ASSERT_EQ(report(folder, run).code, 0);
  const nlohmann::json heat = script_data(page(folder))["runs"][0].at("heat");
  EXPECT_EQ(heat.size(), 48u);
  EXPECT_EQ(heat.back().at("step"), 5000);
}

}  // namespace
}  // namespace octet::report_test
