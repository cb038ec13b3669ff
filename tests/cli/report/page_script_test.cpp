// Elements that the script of pages builds, outside a browser: page_dom.js, run by Node. Skips
// where it is not.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cli/report/report_runs.h"

namespace octet::report_page_script_test {
namespace {

using test::ScratchFolder;
using test::write_run;
using testing::HasSubstr;

constexpr const char* kHostile = "<img src=x onerror=alert(1)>";

class PageScript : public testing::Test {
 protected:
  void SetUp() override {
    if (std::system("command -v node >/dev/null 2>&1") != 0) GTEST_SKIP() << "needs Node";
  }
  std::string built(const std::string& page) const {
    const std::string command = "node " OCTET_SOURCE_DIR "/tests/cli/report/page_dom.js '" +
                                (folder_ / page) + "' >" + (folder_ / "built.txt") + " 2>&1";
    const int status = std::system(command.c_str());
    const std::string text = posix_files().read_text(folder_ / "built.txt");
    EXPECT_EQ(status, 0) << text;
    return text;
  }
  ScratchFolder folder_;
};

TEST_F(PageScript, builds_results_and_marks_none_of_one_seed_as_best) {
  const std::string runs =
      write_run(folder_, "a", 30) + " " + write_run(folder_, "b", 3, [](nlohmann::json& line) {
        line["tokens_per_s"] = 52345.0;
        line["loss"] = 1e7;
        line["mem_bytes"] = 7;
        line.erase("val_loss");
      });
  ASSERT_EQ(test::report(folder_, runs).code, 0);
  const std::string text = built("page.html");
  EXPECT_THAT(text, HasSubstr("    p.lead 2 runs, 33 steps in all. "));
  EXPECT_THAT(text, HasSubstr("          td " + (folder_ / "a") +
                              "\n            span.key\n"
                              "          td.name unknown\n          td 30\n          td 0.2665\n"
                              "          td 0.1333\n          td 0.1333 (30)\n"
                              "          td 1000 tokens/s\n          td 3.0 MiB\n"
                              "          td.none no checkpoint\n"));
  EXPECT_THAT(text, HasSubstr("          td 3\n          td 1.000e+7\n          td.none none\n"
                              "          td.none none\n          td 52.3k tokens/s\n"
                              "          td 7 bytes\n"));
  EXPECT_THAT(text, testing::Not(HasSubstr("td.best")));
  EXPECT_THAT(text, HasSubstr("    h2 Where the configurations differ\n    p.none Nowhere.\n"));
}

TEST_F(PageScript, hands_curves_over_with_their_bands_and_hides_runs) {
  const std::string runs =
      write_run(folder_, "a", 3) + " " +
      write_run(folder_, "b", 2, [](nlohmann::json& line) { line["mem_bytes"] = 0; });
  ASSERT_EQ(test::report(folder_, runs).code, 0);
  const std::string text = built("page.html");
  EXPECT_THAT(text, HasSubstr("chart 1 Training loss over step {\"log\":false,\"zero\":false,"
                              "\"dots\":false,\"hidden\":[1],"));
  EXPECT_THAT(text, HasSubstr("  rows [[1,[5,5,5],[5,5,5]],[2,[2.5,2.5,2.5],[2.5,2.5,2.5]]]\n"
                              "  tip step 1|" +
                              (folder_ / "a") + "|5\n"));
  EXPECT_THAT(text, HasSubstr("chart 2 Validation loss over step {\"log\":false,\"zero\":false,"
                              "\"dots\":true,"));
  EXPECT_THAT(text, HasSubstr("chart 3 Gradient norm over step {\"log\":true,"));
  for (const char* title : {"chart 4 Learning rate", "chart 5 Speed", "chart 6 Planned memory"})
    EXPECT_THAT(text, HasSubstr(title + std::string(" over step {\"log\":false,\"zero\":true,")));
  EXPECT_THAT(text, HasSubstr("\"ticks\":\"0 0.8 MiB 1.5 MiB 2.3 MiB 3.0 MiB\""));
}

// Figures of evaluations of preferences, as charts behind the others and as a table.
TEST_F(PageScript, shows_what_evaluations_tell_beside_the_loss) {
  const std::string runs =
      write_run(folder_, "a", 3) + " " + write_run(folder_, "b", 3, [](nlohmann::json& line) {
        const int step = line["step"];
        line["val_accuracy"] = 0.5 + step / 8.0;
        line["val_margin"] = 0.25 * step;
      });
  const std::string csv = folder_ / "steps.csv";
  ASSERT_EQ(test::report(folder_, runs + " --csv " + csv).code, 0);
  const std::string text = built("page.html");
  EXPECT_THAT(text, HasSubstr("chart 7 Validation accuracy over step {"));
  EXPECT_THAT(text, HasSubstr("chart 8 Margin of rewards over step {"));
  EXPECT_THAT(text, HasSubstr("    h2 Validation figures\n"));
  EXPECT_THAT(text, HasSubstr("          td 0.8750\n          td 0.7500\n"));
  const std::string steps = posix_files().read_text(csv);
  EXPECT_THAT(steps, HasSubstr(",skipped,val_accuracy,val_margin\n"));
  EXPECT_THAT(steps, HasSubstr(",0,,\n"));
  EXPECT_THAT(steps, HasSubstr(",0,0.875,0.75\n"));
}

TEST_F(PageScript, shows_texts_of_each_step_by_prompt) {
  const std::string run = write_run(folder_, "a", 3);
  folder_.put("a/samples.jsonl", std::string(R"({"step":2,"prompt":"Once","text":)") + "\"" +
                                     kHostile + R"(","stop":"token"})" + "\n");
  ASSERT_EQ(test::report(folder_, run).code, 0);
  const std::string text = built("page.html");
  EXPECT_THAT(text, HasSubstr("    h2 Samples\n    figure.card\n"));
  EXPECT_THAT(text, HasSubstr("            th step\n            th Once\n"));
  EXPECT_THAT(text, HasSubstr("            td 2\n            td " + std::string(kHostile)));
}

// Two recipes, two seeds each; the second recipe's losses lie `less` below the first one's, and
// by another `spread` with the second seed.
std::string write_four_runs(const ScratchFolder& folder, double less, double spread) {
  std::string runs;
  for (const std::string recipe : {"bf16", "coat"}) {
    for (const std::string seed : {"1", "2"}) {
      const double shift = seed == "1" ? 0 : 0.5;
      const double own = recipe == "bf16" ? shift : shift - less - (seed == "1" ? 0 : spread);
      runs += write_run(folder, recipe + seed, 3,
                        [&](nlohmann::json& line) { line["loss"] = line["val_loss"] = 4 + own; }) +
              " ";
      test::write_config(folder, recipe + seed, {"recipe=" + recipe, "train.seed=" + seed});
    }
  }
  return runs;
}

TEST_F(PageScript, the_first_chart_is_the_loss_minus_bf16_with_the_error_over_seeds) {
  ASSERT_EQ(test::report(folder_, write_four_runs(folder_, 0.25, 0.125)).code, 0);
  const std::string text = built("page.html");
  EXPECT_THAT(text, HasSubstr("chart 0 Training loss minus bf16 over step"));
  EXPECT_THAT(text, HasSubstr("  rows [[1,[-0.375,-0.3125,-0.25]],[2,[-0.375,-0.3125,-0.25]]]\n"
                              "  tip step 1|coat (2 seeds)|-0.3125|\u00b1 0.0625\n"));
  for (const char* label : {"bf16, seed 1", "bf16, seed 2", "coat, seed 1", "coat, seed 2"})
    EXPECT_THAT(text, HasSubstr("label " + std::string(label)));
}

TEST_F(PageScript, marks_a_configuration_as_best_where_the_difference_exceeds_its_error) {
  ASSERT_EQ(test::report(folder_, write_four_runs(folder_, 0.25, 0.125)).code, 0);
  EXPECT_THAT(built("page.html"), HasSubstr("          td.best 3.9375 \u00b1 0.19\n"
                                            "          td -0.3125 \u00b1 0.063\n"));
  ASSERT_EQ(test::report(folder_, write_four_runs(folder_, 0.25, 2)).code, 0);
  EXPECT_THAT(built("page.html"), testing::Not(HasSubstr("td.best")));
}

// One norm of 20 steps that share a point is zero; the other run has no norm above it.
TEST_F(PageScript, a_logarithmic_band_ends_at_the_least_that_is_shown) {
  const std::string runs =
      write_run(folder_, "a", 8'400,
                [](nlohmann::json& line) {
                  const bool is_zero = line.at("step").get<int>() % 20 == 0;
                  line["grad_norm"] = is_zero ? 0.0 : 2.0;
                }) +
      " " + write_run(folder_, "b", 3, [](nlohmann::json& line) { line["grad_norm"] = 0.0; });
  ASSERT_EQ(test::report(folder_, runs).code, 0);
  const std::string text = built("page.html");
  const std::string norm = text.substr(text.find("chart 2"), 1000);
  EXPECT_THAT(norm, HasSubstr("  rows [[1,null,[null,null,null]]"));
  EXPECT_THAT(norm, HasSubstr("|1.9|1.9 \u2013 2\n"));
}

TEST_F(PageScript, builds_heat_maps_of_the_worst_edges) {
  const std::string run = write_run(folder_, "a");
  const nlohmann::json edge = {{"event", "edge"}, {"role", "forward"}, {"dtype", "e4m3"},
                               {"elements", 64},  {"amax", 1},         {"saturated", 0.0},
                               {"scale", 1.0},    {"zeros", 0.25}};
  std::string lines;
  for (const auto& [step, layer, rms] :
       {std::tuple(10, 1, 0x1p-9), std::tuple(10, -1, 1.0), std::tuple(20, 1, 1.0)}) {
    nlohmann::json line = edge;
    line.update({{"step", step}, {"layer", layer}, {"rms", rms}, {"edge", kHostile}});
    lines += line.dump() + "\n";
  }
  folder_.put("a/telemetry.jsonl", lines);
  ASSERT_EQ(test::report(folder_, run).code, 0);
  const std::string what = std::string(kHostile) + " (e4m3), ", at = "          i ";
  EXPECT_THAT(
      built("page.html"),
      HasSubstr("        div.heat\n          span outside\n          span layer 1\n" + at +
                "outside the layers, step 10: " + what +
                "inside its window, zeros 0.2500, saturated 0.000000\n" + at +
                "layer 1, step 10: " + what + "wants 2^10, zeros 0.2500, saturated 0.000000\n" +
                at + "layer 1, step 20: " + what +
                "inside its window, zeros 0.2500, saturated 0.000000\n"
                "          p\n            span step 10\n            span 20\n"));
}

TEST_F(PageScript, names_of_studies_are_text_where_charts_take_markup) {
  const std::string out = folder_ / "st";
  ASSERT_EQ(test::program(folder_, "study formats --samples 1000 --out " + out).code, 0);
  auto study = nlohmann::ordered_json::parse(posix_files().read_text(folder_ / "st/study.json"));
  nlohmann::ordered_json& figure = study["figures"][0];
  figure.update({{"x_title", kHostile}, {"x_names", {"zero", "<b>", kHostile}}, {"log", true}});
  figure["curves"] = {{{"name", kHostile}, {"x", {0, 1, 2}}, {"y", {1, nullptr, 100}}}};
  study["figures"][1].erase("curves");
  folder_.put("st/study.json", study.dump());
  ASSERT_EQ(test::program(folder_, "study report " + out + " --out " + out).code, 0);
  const std::string text = built("st/index.html");
  EXPECT_THAT(text, HasSubstr("      p.axis <img src=x onerror=alert(1)>\n"));
  EXPECT_THAT(text, HasSubstr("  x zero &#60;b&#62; &#60;img src=\u2026"
                              "lert(1)&#62;\n"
                              "  rows [[0,[1,1,1]],[1,[null,null,null]]]\n  tip zero|" +
                              std::string(kHostile) + "|1\n"));
  EXPECT_THAT(text, HasSubstr("    figure.card drawn\n      img data:image/svg+xml,%3Csvg"));
  EXPECT_THAT(text, HasSubstr("        th format\n        th max_finite\n"));
}

}  // namespace
}  // namespace octet::report_page_script_test
