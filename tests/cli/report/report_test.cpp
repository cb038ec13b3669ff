// octet report: the page as text, from runs written here by hand.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <nlohmann/json.hpp>
#include <regex>

#include "config/load.h"
#include "config/report.h"
#include "unit/base/scratch_folder.h"

namespace octet {
namespace {

using test::ScratchFolder;
using testing::HasSubstr;
using testing::Not;

struct Outcome {
  int code = -1;
  std::string out, err;
};

Outcome report(const ScratchFolder& folder, const std::string& arguments) {
  // A page that never ends must not take the machine's memory with it.
  const std::string command = "ulimit -v 4000000; timeout 60 " OCTET_PROGRAM " report " +
                              arguments + " --out " + (folder / "page.html") + " >" +
                              (folder / "out.txt") + " 2>" + (folder / "err.txt") + " </dev/null";
  const int status = std::system(command.c_str());
  return {WIFEXITED(status) ? WEXITSTATUS(status) : -1, posix_files().read_text(folder / "out.txt"),
          posix_files().read_text(folder / "err.txt")};
}

std::string page(const ScratchFolder& folder) {
  return posix_files().read_text(folder / "page.html");
}

// A run of `n` steps; `line` may change a step's object.
template <typename Change>
std::string write_run(const ScratchFolder& folder, const std::string& name, int n, Change change) {
  std::string text;
  for (int step = 1; step <= n; ++step) {
    nlohmann::json line = {
        {"step", step},        {"loss", 5.0 / step},     {"grad_norm", 1.0}, {"lr", 1e-3},
        {"tokens", 64 * step}, {"tokens_per_s", 1000.0}, {"time_ms", 64.0},  {"mem_bytes", 3 << 20},
        {"skipped", 0},        {"val_loss", 4.0 / step}};
    change(line);
    text += line.dump() + "\n";
  }
  folder.put(name + "/metrics.jsonl", text);
  return "'" + (folder / name) + "'";
}

std::string write_run(const ScratchFolder& folder, const std::string& name, int n = 30) {
  return write_run(folder, name, n, [](nlohmann::json&) {});
}

void write_config(const ScratchFolder& folder, const std::string& name, const std::string& set) {
  folder.put(name + "/config.yaml", resolved_yaml(parse_config("{}", "none", {set}).config));
}

// Every element is closed in the right order.
void expect_balanced(const std::string& html) {
  const std::vector<std::string> empty = {"meta",    "line",  "circle",  "polyline",
                                          "polygon", "input", "!DOCTYPE"};
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

// The points of a chart's lines, as numbers.
std::vector<double> coordinates(const std::string& html) {
  std::vector<double> numbers;
  const std::regex points("points=\"([^\"]*)\"");
  for (std::sregex_iterator it(html.begin(), html.end(), points), end; it != end; ++it) {
    std::string text = (*it)[1];
    std::replace(text.begin(), text.end(), ',', ' ');
    std::istringstream in(text);
    for (std::string word; in >> word;) numbers.push_back(std::stod(word));
  }
  return numbers;
}

TEST(Report, needs_nothing_but_itself_and_has_all_curves) {
  const ScratchFolder folder;
  const Outcome outcome = report(folder, write_run(folder, "a") + " " + write_run(folder, "b"));
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  const std::string html = page(folder);
  for (const char* outside : {"http:", "https:", "src=", "href=", "url(", "@import"})
    EXPECT_THAT(html, Not(HasSubstr(outside)));
  for (const char* title : {"Training loss", "Validation loss", "Gradient norm", "Learning rate",
                            "Speed", "Memory", "prefers-color-scheme: dark"})
    EXPECT_THAT(html, HasSubstr(title));
  EXPECT_EQ(std::regex_replace(html, std::regex("of-1\""), "").size(), html.size() - 6 * 5);
  expect_balanced(html);
}

TEST(Report, the_lowest_loss_is_drawn_lowest_and_steps_go_to_the_right) {
  const ScratchFolder folder;
  ASSERT_EQ(report(folder, write_run(folder, "a", 3)).code, 0);
  const auto xy = coordinates(page(folder));  // the first line: 5, 2.5, 1.67
  ASSERT_GE(xy.size(), 6u);
  EXPECT_LT(xy[0], xy[2]);
  EXPECT_LT(xy[2], xy[4]);
  EXPECT_LT(xy[1], xy[3]);
  EXPECT_LT(xy[3], xy[5]);
  EXPECT_NEAR((xy[3] - xy[1]) / (xy[5] - xy[1]), (5 - 2.5) / (5 - 5.0 / 3), 0.01);
}

TEST(Report, names_are_text_and_never_markup) {
  const ScratchFolder folder;
  const std::string run = write_run(folder, "<script>alert(1)<br> & \"q\"");
  ASSERT_EQ(report(folder, run).code, 0);
  EXPECT_THAT(page(folder), Not(HasSubstr("alert(1)<br>")));
  EXPECT_THAT(page(folder), HasSubstr("&lt;script&gt;alert(1)&lt;br&gt; &amp; &quot;q&quot;"));
  expect_balanced(page(folder));
}

TEST(Report, values_that_are_not_finite_leave_gaps_and_marks) {
  const ScratchFolder folder;
  const std::string run = write_run(folder, "a", 40, [](nlohmann::json& line) {
    const int step = line.at("step");
    if (step > 10 && step < 20) line["loss"] = line["grad_norm"] = nullptr;
    if (step == 30) line["grad_norm"] = 1e30;
    if (step == 31) line["grad_norm"] = 0.0;
  });
  ASSERT_EQ(report(folder, run).code, 0);
  const std::string html = page(folder);
  EXPECT_THAT(html, HasSubstr("class=\"gap\""));
  for (const double number : coordinates(html)) {
    EXPECT_GE(number, 0);
    EXPECT_LE(number, 560);
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
  EXPECT_LT(html.size(), 100'000u);
  for (const char* bad : {"=\"nan", "=\"inf", "=\"-inf", ",nan", ",inf", "nan,", "-nan", ">nan"})
    EXPECT_THAT(html, Not(HasSubstr(bad)));
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
  write_config(folder, "a", "optim.lr=0.25");
  write_config(folder, "b", "optim.lr=0.125");
  ASSERT_EQ(report(folder, runs).code, 0);
  const std::string html = page(folder);
  EXPECT_THAT(html, HasSubstr("<code>optim.lr</code></td><td><code>0.25</code></td><td><code>0.125"
                              "</code></td>"));
  EXPECT_THAT(html, Not(HasSubstr("<code>optim.eps</code>")));
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
  EXPECT_EQ(rows[0].at("mem_bytes"), 3 << 20);
}

TEST(Report, of_what_is_no_run_is_one_line_and_leaves_no_page) {
  const ScratchFolder folder;
  const Outcome outcome = report(folder, folder / "nowhere");
  EXPECT_EQ(outcome.code, 3);
  EXPECT_EQ(outcome.err, "octet: [report] '" + (folder / "nowhere") +
                             "': expected a run with metrics.jsonl, got none\n");
  EXPECT_FALSE(posix_files().exists(folder / "page.html"));
}

std::string edge_line(int step, int layer, const char* edge, double rms) {
  return nlohmann::json{{"step", step},   {"event", "edge"},   {"edge", edge},
                        {"layer", layer}, {"role", "forward"}, {"dtype", "e4m3"},
                        {"elements", 64}, {"rms", rms},        {"amax", 4 * rms},
                        {"zeros", 0.25},  {"saturated", 0.0},  {"scale", 1.0}}
             .dump() +
         "\n";
}

size_t count(const std::string& text, const std::string& what) {
  size_t n = 0;
  for (size_t at = text.find(what); at != text.npos; at = text.find(what, at + 1)) ++n;
  return n;
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
  const std::string html = page(folder);
  expect_balanced(html);
  EXPECT_THAT(html, HasSubstr("Edges outside their window"));
  EXPECT_THAT(html, HasSubstr("layer 0, step 10: layers.0.&lt;b&gt;.x (e4m3), wants 2^10"));
  EXPECT_THAT(html, HasSubstr("layer 1, step 20: layers.1.q_proj.x (e4m3), inside its window"));
  EXPECT_EQ(count(html, "fill:#d03b2f"), 1U);
  EXPECT_EQ(count(html, "fill:#2f6fd0"), 5U);
}

TEST(Report, many_samples_are_thinned_and_no_sample_is_no_heat_map) {
  const ScratchFolder folder;
  const std::string run = write_run(folder, "run");
  ASSERT_EQ(report(folder, run).code, 0);
  EXPECT_THAT(page(folder), Not(HasSubstr("Edges outside")));
  std::string lines;
  for (int step = 1; step <= 5000; ++step) lines += edge_line(step, 0, "layers.0.q_proj.x", 1);
  folder.put("run/telemetry.jsonl", lines);
  ASSERT_EQ(report(folder, run).code, 0);
  EXPECT_LE(count(page(folder), "fill:#2f6fd0"), 48U);
  EXPECT_THAT(page(folder), HasSubstr("step 5000: layers"));
}

}  // namespace
}  // namespace octet
