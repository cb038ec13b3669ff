// Figures of studies, as SVG text.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <regex>
#include <sstream>

#include "cli/study_chart.h"
#include "cli/study_page.h"

namespace octet {
namespace {

using testing::HasSubstr;
using testing::Not;

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

// The points of an SVG's lines and bands, as numbers.
std::vector<double> coordinates(const std::string& svg) {
  std::vector<double> numbers;
  const std::regex points("points=\"([^\"]*)\"");
  for (std::sregex_iterator it(svg.begin(), svg.end(), points), end; it != end; ++it) {
    std::string text = (*it)[1];
    std::replace(text.begin(), text.end(), ',', ' ');
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
  EXPECT_THAT(svg, HasSubstr("&lt;A&gt; &amp; B"));
  EXPECT_THAT(svg, HasSubstr("s&lt;</text>"));
}

TEST(FigureSvg, ratios_are_distances_on_a_logarithmic_scale) {
  const auto xy = coordinates(figure_svg({.file = "f",
                                          .title = "t",
                                          .x_title = "x",
                                          .y_title = "y",
                                          .scale = FigureScale::logarithmic,
                                          .series = {{"s", {1, 2, 3}, {1, 10, 1000}}}}));
  ASSERT_EQ(xy.size(), 6u);
  EXPECT_NEAR((xy[1] - xy[5]) / (xy[1] - xy[3]), 3, 0.02);
}

TEST(ChartBody, values_that_are_not_finite_leave_gaps_and_marks) {
  const std::string svg = chart_body({{{1, 2, 3, 4, 5, 6}, {1, 2, kNan, kNan, 2, 1}}}, {});
  EXPECT_EQ(count(svg, "<polyline"), 2u);
  EXPECT_EQ(count(svg, "class=\"gap\""), 2u);
  EXPECT_EQ(chart_body({{{1, 2}, {kNan, kNan}}}, {}), "");
}

TEST(ChartBody, many_points_are_means_in_front_of_a_band) {
  Curve curve;
  for (int i = 0; i < 15'000; ++i) {
    curve.x.push_back(i);
    curve.y.push_back(i % 2);
  }
  const std::string svg = chart_body({curve}, {});
  EXPECT_EQ(count(svg, "class=\"band\""), 1u);
  EXPECT_EQ(coordinates(svg).size(), 2u * (2 * 150 + 150));
}

class Odd : public testing::TestWithParam<Curve> {};

TEST_P(Odd, curves_stay_inside_the_chart) {
  for (const YScale scale : {YScale::linear, YScale::logarithmic}) {
    const std::string svg = chart_body({GetParam()}, {.scale = scale});
    EXPECT_LT(svg.size(), 20'000u);
    for (const double number : coordinates(svg)) {
      EXPECT_GE(number, 0);
      EXPECT_LE(number, kChartWidth);
    }
    for (const char* bad : {"nan,", ",nan", "inf", "=\"nan", ">nan", "-nan"})
      EXPECT_THAT(svg, Not(HasSubstr(bad)));
  }
}

INSTANTIATE_TEST_SUITE_P(
    curves, Odd,
    testing::Values(Curve{{1}, {2}}, Curve{{1, 9}, {1, 1}}, Curve{{1, 1}, {-5, 1e308}},
                    Curve{{1e12}, {0}}, Curve{{8999999999999998, 8999999999999999}, {1, 1}},
                    Curve{{1, 2}, {2.5, 2.5000000000000004}}, Curve{{1, 2}, {1.7e308, -1.7e308}},
                    Curve{{1, 2, 3}, {5e-324, 0, 1e-323}}, Curve{{1, 2, 3}, {-3, 1e-45, 3e38}}));

}  // namespace
}  // namespace octet
