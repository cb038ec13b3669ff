// Figures of studies, as SVG text.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <regex>
#include <sstream>

#include "cli/study_svg.h"

namespace octet::figures_test {
namespace {

using testing::HasSubstr;
using testing::Not;

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

Figure figure_of(const Series& series, FigureScale scale = FigureScale::linear) {
  return {.file = "f",
          .title = "t",
          .x_title = "x",
          .y_title = "y",
          .scale = scale,
          .series = {series}};
}

// The points of an SVG's curves, as numbers.
std::vector<double> coordinates(const std::string& svg) {
  std::vector<double> numbers;
  const std::regex paths("class=\"curve\" d=\"([^\"]*)\"");
  for (std::sregex_iterator it(svg.begin(), svg.end(), paths), end; it != end; ++it) {
    std::string text = (*it)[1];
    std::ranges::replace_if(
        text, [](char ch) { return ch == 'M' || ch == 'L'; }, ' ');
    std::istringstream in(text);
    for (std::string word; in >> word;) numbers.push_back(std::stod(word));
  }
  return numbers;
}

size_t count(const std::string& text, const std::string& what) {
  size_t n = 0;
  for (size_t at = text.find(what); at != text.npos; at = text.find(what, at + 1)) ++n;
  return n;
}

TEST(FigureSvg, the_lowest_value_is_drawn_lowest_and_steps_go_to_the_right) {
  const std::string svg = figure_svg({.file = "f",
                                      .title = "<A> & B",
                                      .x_title = "step",
                                      .y_title = "dB",
                                      .series = {{"s<", {1, 2, 3}, {5, 2.5, 1.5}}}});
  const auto xy = coordinates(svg);
  ASSERT_EQ(xy.size(), 6u);
  EXPECT_LT(xy[0], xy[2]);
  EXPECT_LT(xy[2], xy[4]);
  EXPECT_LT(xy[1], xy[3]);
  EXPECT_LT(xy[3], xy[5]);
  EXPECT_NEAR((xy[3] - xy[1]) / (xy[5] - xy[1]), (5 - 2.5) / (5 - 1.5), 0.01);
  for (const char* text :
       {"&#60;A&#62; &#38; B</text>", "s&#60;</text>", "dB</text>", "step</text>"})
    EXPECT_THAT(svg, HasSubstr(text));
}

TEST(FigureSvg, ratios_are_distances_on_a_logarithmic_scale) {
  const auto xy =
      coordinates(figure_svg(figure_of({"s", {1, 2, 3}, {1, 10, 1000}}, FigureScale::logarithmic)));
  ASSERT_EQ(xy.size(), 6u);
  EXPECT_NEAR((xy[1] - xy[5]) / (xy[1] - xy[3]), 3, 0.02);
}

TEST(FigureSvg, values_that_are_not_finite_leave_gaps_and_marks) {
  const std::string svg =
      figure_svg(figure_of({"s", {1, 2, 3, 4, 5, 6}, {1, 2, kNan, kNan, 2, 1}}));
  EXPECT_EQ(coordinates(svg).size(), 8u);
  EXPECT_TRUE(std::regex_search(svg, std::regex("d=\"M[^ML]*L[^ML]*M[^ML]*L[^ML]*\"")));
  EXPECT_EQ(count(svg, "class=\"gap\""), 2u);
  EXPECT_THAT(figure_svg(figure_of({"s", {1, 2}, {kNan, kNan}})), HasSubstr(" d=\"\"/>"));
}

TEST(FigureSvg, nothing_that_is_not_positive_is_on_a_logarithmic_scale) {
  const std::string svg =
      figure_svg(figure_of({"s", {1, 2, 3, 4}, {1, 0, -1, 10}}, FigureScale::logarithmic));
  EXPECT_EQ(coordinates(svg).size(), 4u);
  EXPECT_EQ(count(svg, "class=\"gap\""), 2u);
  EXPECT_EQ(count(svg, "<circle"), 2u) << "points alone are dots";
}

TEST(FigureSvg, ticks_are_even_and_differ) {
  const auto ticks_of = [](const std::string& svg) {
    std::vector<std::string> ticks;
    const std::regex tick("text-anchor=\"end\">([^<]*)</text>");
    for (std::sregex_iterator it(svg.begin(), svg.end(), tick), end; it != end; ++it)
      ticks.push_back((*it)[1]);
    ticks.pop_back();  // the title of x
    return ticks;
  };
  using Texts = std::vector<std::string>;
  EXPECT_EQ(ticks_of(figure_svg(figure_of({"s", {1, 2}, {-0.1, 0.3}}))),
            (Texts{"-0.1", "0", "0.1", "0.2", "0.3"}));
  EXPECT_EQ(ticks_of(figure_svg(figure_of({"s", {1, 2}, {1000.01, 1000.05}}))),
            (Texts{"1000.01", "1000.02", "1000.03", "1000.04", "1000.05"}));
  EXPECT_EQ(ticks_of(figure_svg(figure_of({"s", {1, 2}, {0.09, 2.1}}, FigureScale::logarithmic))),
            (Texts{"0.1", "0.2", "0.5", "1", "2"}));
  EXPECT_EQ(ticks_of(figure_svg(figure_of({"s", {1, 2}, {1e-6, 1}}, FigureScale::logarithmic))),
            (Texts{"1e-06", "1e-05", "0.0001", "0.001", "0.01", "0.1", "1"}));
}

TEST(FigureSvg, of_many_names_some_are_shown_by_their_ends) {
  Figure figure = figure_of({"s", {0, 99}, {1, 2}});
  for (int i = 0; i < 100; ++i)
    figure.x_names.push_back("layers.<>.norm" + std::to_string(1000 + i));
  const std::string svg = figure_svg(figure);
  EXPECT_EQ(count(svg, "rotate("), 25u);
  EXPECT_THAT(svg, HasSubstr(">\u2026yers.&#60;&#62;.norm1000</text>"));
}

TEST(FigureSvg, names_of_x_have_dots_and_no_line_that_would_order_them) {
  Figure figure = figure_of({"s", {0, 1, 2}, {1, 2, 3}});
  figure.has_dots = true;
  EXPECT_EQ(coordinates(figure_svg(figure)).size(), 6u);
  figure.x_names = {"a", "b", "c"};
  const std::string svg = figure_svg(figure);
  EXPECT_TRUE(coordinates(svg).empty());
  EXPECT_EQ(count(svg, "<circle"), 3u);
}

TEST(FigureSvg, text_that_is_no_utf_8_and_control_characters_are_replaced) {
  Figure figure =
      figure_of({"a\x01"
                 "b\xff"
                 "\u00e9",
                 {1},
                 {2}});
  EXPECT_THAT(figure_svg(figure), HasSubstr(">a b\uFFFD\u00e9</text>"));
}

class OddCurves : public testing::TestWithParam<Series> {};

TEST_P(OddCurves, curves_stay_inside_the_plot) {
  for (const FigureScale scale : {FigureScale::linear, FigureScale::logarithmic}) {
    const std::string svg = figure_svg(figure_of(GetParam(), scale));
    EXPECT_LT(svg.size(), 20'000u);
    const std::vector<double> xy = coordinates(svg);
    for (size_t i = 0; i < xy.size(); ++i) {
      EXPECT_GE(xy[i], i % 2 == 0 ? 64 : 60);
      EXPECT_LE(xy[i], i % 2 == 0 ? 548 : 310);
    }
    for (const char* bad : {"nan ", " nan", "inf", "=\"nan", ">nan", "-nan"})
      EXPECT_THAT(svg, Not(HasSubstr(bad)));
  }
}

INSTANTIATE_TEST_SUITE_P(curves, OddCurves,
                         testing::Values(Series{"s", {1}, {2}}, Series{"s", {1, 9}, {1, 1}},
                                         Series{"s", {1, 1}, {-5, 1e308}}, Series{"s", {1e12}, {0}},
                                         Series{"s", {8999999999999998, 8999999999999999}, {1, 1}},
                                         Series{"s", {1, 2}, {2.5, 2.5000000000000004}},
                                         Series{"s", {1, 2}, {1.7e308, -1.7e308}},
                                         Series{"s", {1, 2, 3}, {5e-324, 0, 1e-323}},
                                         Series{"s", {1, 2, 3}, {-3, 1e-45, 3e38}}));

}  // namespace
}  // namespace octet::figures_test
