// octet study report: the page as text.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "cli/report/report_runs.h"

namespace octet::report_study_page_test {
namespace {

using test::program;
using test::ScratchFolder;

class StudyPage : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_EQ(program(folder_, "study formats --samples 1000 --out " + (folder_ / "st")).code, 0);
  }
  std::string page() {
    EXPECT_EQ(program(folder_, report()).code, 0);
    return posix_files().read_text(folder_ / "out/index.html");
  }
  nlohmann::json study() const {
    return nlohmann::json::parse(posix_files().read_text(folder_ / "st/study.json"));
  }
  std::string report() const {
    return "study report " + (folder_ / "st") + " --out " + (folder_ / "out");
  }
  ScratchFolder folder_;
};

TEST_F(StudyPage, holds_the_table_and_the_curves_of_the_csv_files) {
  const nlohmann::json page_study = test::script_data(page()).at("studies").at(0);
  EXPECT_EQ(page_study["title"], "Number formats");
  EXPECT_EQ(page_study["columns"][0], "format");
  EXPECT_EQ(page_study["rows"][0][0], "e4m3");
  const nlohmann::json& figure = page_study.at("figures").at(1);
  EXPECT_EQ(figure["y_title"], "dB");
  std::ifstream csv(folder_ / "st/snr.csv");
  std::string line;
  std::getline(csv, line);
  EXPECT_EQ(line, "log2 sigma,e4m3,e5m2,hif8,int8,de8s");
  for (size_t i = 0; std::getline(csv, line); ++i) {
    std::istringstream cells(line);
    std::string x, y;
    std::getline(cells, x, ',');
    std::getline(cells, y, ',');
    EXPECT_EQ(figure["curves"][0]["x"].at(i), std::stod(x));
    EXPECT_NEAR(figure["curves"][0]["y"].at(i).get<double>(), std::stod(y), 1e-6);
  }
}

TEST_F(StudyPage, shows_at_most_four_digits_of_a_figure_and_csv_files_all) {
  const std::string html = page();
  EXPECT_EQ(test::script_data(html)["studies"][0]["rows"][0][2], "0.001953");
  EXPECT_EQ(test::script_data(html)["studies"][0]["rows"][1][1], "57344");
  EXPECT_THAT(html, testing::HasSubstr("<td>0.001953</td>"));
  EXPECT_THAT(posix_files().read_text(folder_ / "st/formats.csv"),
              testing::HasSubstr("0.00195312"));
  const std::string command = "study formats --samples 1000";
  EXPECT_THAT(program(folder_, command).out, testing::HasSubstr(" 0.001953 "));
  EXPECT_THAT(program(folder_, command + " --json").out, testing::HasSubstr("0.00195312"));
}

TEST_F(StudyPage, text_is_never_markup_or_script) {
  nlohmann::json json = study();
  json["title"] = json["table"]["rows"][0][0] = json["figures"][0]["x_title"] =
      "</script><!--<script>alert(1)</script>";
  folder_.put("st/study.json", json.dump());
  const std::string html = page();
  EXPECT_EQ(html.find("alert(1)</script"), html.npos);
  EXPECT_EQ(html.find("<!--"), html.npos);
  EXPECT_EQ(test::script_data(html)["studies"][0]["title"], json["title"]);
}

TEST_F(StudyPage, of_a_study_without_curves_shows_the_figures_beside_it) {
  nlohmann::json json = study();
  for (nlohmann::json& figure : json["figures"])
    figure = {{"file", figure["file"]}, {"title", figure["title"]}};
  folder_.put("st/study.json", json.dump());
  EXPECT_EQ(test::script_data(page())["studies"][0]["figures"][1]["svg"],
            posix_files().read_text(folder_ / "st/snr.svg"));
  json["figures"][0]["file"] = "../st/snr";
  folder_.put("st/study.json", json.dump());
  const test::Outcome outcome = program(folder_, report());
  EXPECT_EQ(outcome.code, 3);
  EXPECT_THAT(outcome.err, testing::HasSubstr("expected a figure's name, got '../st/snr'"));
}

TEST_F(StudyPage, replaces_a_page_of_studies_that_was_all_markup) {
  folder_.put("out/index.html",
              "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
              "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
              "<title>Octet studies</title>\n<style>\n");
  EXPECT_THAT(page(), testing::HasSubstr("id=\"data\">"));
}

TEST_F(StudyPage, of_what_no_study_wrote_is_an_error_and_no_page) {
  for (const char* key : {"title", "table", "figures"}) {
    nlohmann::json json = study();
    json[key] = 7;
    folder_.put("st/study.json", json.dump());
    const test::Outcome outcome = program(folder_, report());
    EXPECT_EQ(outcome.code, 3) << key;
    EXPECT_THAT(outcome.err, testing::HasSubstr("expected what a study writes"));
    EXPECT_FALSE(posix_files().exists(folder_ / "out/index.html"));
    ASSERT_EQ(program(folder_, "study formats --samples 1000 --out " + (folder_ / "st2")).code, 0);
    folder_.put("st/study.json", posix_files().read_text(folder_ / "st2/study.json"));
  }
}

}  // namespace
}  // namespace octet::report_study_page_test
