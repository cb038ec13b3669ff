#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <numbers>

#include "base/files.h"
#include "formats/codec.h"
#include "study/formats.h"
#include "study/groups.h"
#include "study/states.h"
#include "unit/base/error_of.h"
#include "unit/base/scratch_folder.h"
#include "unit/math/state_mse.h"

namespace octet::study_test {
namespace {

// Every finite positive value of a format, and 0, ascending.
std::vector<double> values_of(Dtype dtype) {
  std::vector<double> values;
  for (uint32_t code = 0; code < 256; ++code) {
    const auto x = static_cast<double>(decode(dtype, code));
    if (x >= 0 && std::isfinite(x)) values.push_back(x);
  }
  std::ranges::sort(values);
  values.erase(std::unique(values.begin(), values.end()), values.end());
  return values;
}

// Integral of f over [a, b], by Gauss and Legendre with four points in each of pieces of an eighth.
template <typename F>
double integral(double a, double b, F&& f) {
  constexpr double kAt[] = {0.3399810435848563, 0.8611363115940526};
  constexpr double kWeight[] = {0.6521451548625461, 0.3478548451374538};
  const int n = std::max(1, static_cast<int>(std::ceil((b - a) * 8)));
  const double half = (b - a) / (2 * n);
  double sum = 0;
  for (int piece = 0; piece < n; ++piece) {
    const double middle = a + half * (2 * piece + 1);
    for (int i = 0; i < 2; ++i)
      sum += half * kWeight[i] * (f(middle - half * kAt[i]) + f(middle + half * kAt[i]));
  }
  return sum;
}

// Expected signal to noise, dB, of N(0, sigma^2): each x at the value next to it, the largest
// beyond. Ties have no measure.
double expected_snr(Dtype dtype, double log2_sigma) {
  constexpr double kEnd = 12;  // deviations
  const double sigma = std::exp2(log2_sigma);
  const std::vector<double> values = values_of(dtype);
  double noise = 0, begin = 0;
  for (size_t i = 0; i < values.size() && begin < kEnd; ++i) {
    const double value = values[i] / sigma;
    const double end =
        i + 1 < values.size() ? std::min(kEnd, (values[i] + values[i + 1]) / 2 / sigma) : kEnd;
    noise +=
        2 * integral(begin, end, [&](double x) {
          return (x - value) * (x - value) * std::exp(-x * x / 2) / std::sqrt(2 * std::numbers::pi);
        });
    begin = end;
  }
  return -10 * std::log10(noise);
}

// All entries of the published table, which has one decimal. Two of its roundings are a little
// further off: E4M3 at 2^16, exactly 0.0474, and HiF8 at 2^6, exactly 25.5500.
TEST(FormatStudy, signal_to_noise_is_as_integrated) {
  struct Row {
    Dtype dtype;
    std::vector<double> db;
  };
  const std::vector<int> sigma = {-24, -20, -16, -12, -10, -8, -6, -4, -2,
                                  0,   2,   4,   6,   8,   10, 12, 14, 16};
  const Row rows[] = {
      {Dtype::e4m3,
       {0, 0, 0, 0, 4.8, 16.8, 28.3, 31.4, 31.5, 31.5, 31.5, 31.5, 31.5, 16.2, 3.3, 0.8, 0.2, 0.1}},
      {Dtype::e5m2,
       {0, 0, 10.8, 25.5, 25.5, 25.5, 25.5, 25.5, 25.5, 25.5, 25.5, 25.5, 25.5, 25.5, 25.5, 25.5,
        25.5, 7.0}},
      {Dtype::hif8,
       {0.6, 14.1, 14.9, 19.7, 19.7, 20.8, 25.2, 26.8, 31.2, 31.5, 31.5, 26.1, 25.6, 20.3, 19.7,
        19.7, 17.2, 3.8}}};
  const std::vector<float> normals = standard_normals(int64_t{1} << 20);
  for (const Row& row : rows) {
    for (size_t i = 0; i < sigma.size(); ++i) {
      const double expected = expected_snr(row.dtype, sigma[i]);
      EXPECT_NEAR(snr_of_normal(row.dtype, sigma[i], normals), expected, 0.05)
          << dtype_name(row.dtype) << " 2^" << sigma[i];
      EXPECT_NEAR(expected, row.db[i], 0.053) << dtype_name(row.dtype) << " 2^" << sigma[i];
    }
  }
}

// 3, 2 and 1 bits of fraction.
TEST(FormatStudy, plateaus_are_those_of_the_bits_of_fraction) {
  EXPECT_NEAR(expected_snr(Dtype::e4m3, 0), 31.52, 0.005);
  EXPECT_NEAR(expected_snr(Dtype::e5m2, 0), 25.54, 0.005);
  EXPECT_NEAR(expected_snr(Dtype::hif8, -11), 19.69, 0.005);
  EXPECT_NEAR(expected_snr(Dtype::hif8, 1.6), 31.56, 0.01);  // the best of HiF8
}

TEST(FormatStudy, significand_bits_are_those_of_the_layouts) {
  const Study study = study_formats(64);
  const auto bits = [&](std::string_view format, double exponent) {
    for (const Series& series : study.figures.at(0).series) {
      for (size_t i = 0; i < series.x.size() && series.name == format; ++i) {
        if (series.x[i] == exponent) return series.y[i];
      }
    }
    return 0.0;
  };
  EXPECT_EQ(bits("hif8", 0), 4);
  EXPECT_EQ(bits("hif8", 5), 3);
  EXPECT_EQ(bits("hif8", -9), 2);
  EXPECT_EQ(bits("hif8", -20), 1);
  EXPECT_EQ(bits("e4m3", -6), 4);
  EXPECT_EQ(bits("e4m3", -9), 1);
  EXPECT_EQ(bits("e5m2", 10), 3);
  EXPECT_EQ(bits("e4m3", 9), 0);
}

StatesOfTensor states(int64_t n) {
  const RandomStream random{.name = name_hash("states")};
  StatesOfTensor s{"w", std::vector<float>(n), std::vector<float>(n)};
  for (int64_t i = 0; i < n; ++i) {
    const float scale = 1e-4f * std::exp(random.normal(3 * i));
    s.m[i] = 0.2f * scale * random.normal(3 * i + 1);
    s.v[i] = scale * scale * (1 + 0.3f * std::abs(random.normal(3 * i + 2)));
  }
  return s;
}

Study study_of(std::vector<StatesOfTensor> tensors, int steps = 6) {
  size_t i = 0;
  return study_states(
      [&]() -> std::optional<StatesOfTensor> {
        return i < tensors.size() ? std::optional(tensors[i++]) : std::nullopt;
      },
      {.average_steps = steps});
}

double cell(const Sheet& sheet, std::string_view row, std::string_view column) {
  for (const auto& cells : sheet.rows) {
    for (size_t i = 0; i < cells.size() && cells[0] == row; ++i) {
      if (sheet.columns[i] == column) return std::stod(cells[i]);
    }
  }
  return NAN;
}

TEST(StatesStudy, agrees_with_the_definition_and_orders_the_formats) {
  const StatesOfTensor s = states(4096);
  const Study study = study_of({s});
  constexpr MomentKind kPlain{Dtype::e4m3, false};
  EXPECT_NEAR(cell(study.table, "e4m3", "e4m3") / state_mse(s.m, s.v, kPlain, kPlain), 1, 1e-3);
  const double plain = cell(study.table, "e4m3", "e4m3"),
               expanded = cell(study.table, "e4m3+x", "e4m3+x");
  EXPECT_GT(plain, 1.5 * expanded);
  EXPECT_GT(cell(study.table, "e5m2", "e5m2"), plain);
  EXPECT_TRUE(std::isfinite(cell(study.table, "companded", "companded")));
}

TEST(StatesStudy, figures_have_a_series_for_each_row_and_name_the_tensors) {
  StatesOfTensor other = states(512);
  other.parameter = "other";
  const Study study = study_of({states(512), other});
  for (const size_t i : {0, 1}) {
    const Figure& figure = study.figures.at(i);
    ASSERT_EQ(figure.series.size(), study.table.rows.size());
    for (size_t row = 0; row < study.table.rows.size(); ++row)
      EXPECT_TRUE(figure.series[row].name.ends_with(study.table.rows[row][0])) << row;
  }
  EXPECT_EQ(study.figures.at(1).x_names, (std::vector<std::string>{"w", "other"}));
}

const StateForm& state_form(std::string_view name) {
  const auto forms = state_forms();
  return *std::find_if(forms.begin(), forms.end(), [&](const auto& f) { return f.name == name; });
}

// sqrt(100352) is a range for which the package's k is 2, and the paper's 34/16.
TEST(StatesStudy, expands_to_the_range_of_coats_package) {
  const std::vector<float> x = {1, 1.0f / 316.78383f};
  const auto package = store_and_load(state_form("e4m3+x100352"), Moment::first, 128, x);
  EXPECT_NEAR(package[1], std::sqrt(2.0 * 0x1p-9 / 448), 1e-6);
  const auto paper = store_and_load(state_form("e4m3+x"), Moment::first, 128, x);
  EXPECT_NEAR(paper[1], std::pow(0x1p-9 / 448, 16.0 / 34), 1e-6);
}

TEST(StatesStudy, counts_the_codes_that_groups_use) {
  StatesOfTensor s{"w", std::vector<float>(128, 1.0f), std::vector<float>(128, 0.5f)};
  s.m[0] = 0;
  s.m[1] = -0x1p-30f;  // below all codes, and with expansion the smallest one
  const Study study = study_of({s});
  const auto figure = std::find_if(study.figures.begin(), study.figures.end(),
                                   [](const Figure& f) { return f.file == "codes"; });
  ASSERT_NE(figure, study.figures.end());
  const auto share = [&](size_t series, size_t code) {
    return figure->series.at(series).y.at(code) * 128 / 100;
  };
  EXPECT_NEAR(share(0, 126), 126, 1e-9);
  EXPECT_NEAR(share(0, 0), 2, 1e-9);
  EXPECT_NEAR(share(1, 126), 126, 1e-9);
  EXPECT_NEAR(share(1, 0), 1, 1e-9);
  EXPECT_NEAR(share(1, 1) + share(1, 2), 1, 1e-9);  // k is cut
  EXPECT_NEAR(share(2, 126) + share(3, 126), 256, 1e-9);
}

TEST(StatesStudy, companded_states_keep_signs_zeros_and_what_is_above_zero) {
  const StateForm& form = state_forms().back();
  ASSERT_EQ(form.name, "companded");
  const std::vector<float> x = {0, 1, -1, 1e-9f, -0.25f, 0.5f};
  const auto m = store_and_load(form, Moment::first, 128, x);
  EXPECT_EQ(m[0], 0);
  EXPECT_EQ(m[1], 1);
  EXPECT_EQ(m[2], -1);
  EXPECT_NEAR(m[4], -0.25f, 0.01f);
  const auto v = store_and_load(form, Moment::second, 128, std::vector<float>{1, 0, 1e-12f, 0.25f});
  EXPECT_EQ(v[1], 0);
  EXPECT_GT(v[2], 0);
  EXPECT_NEAR(v[3], 0.25f, 0.005f);
}

TEST(StatesStudy, has_a_share_of_groups_for_each_range_and_needs_states) {
  const Study study = study_of({states(1024), states(1000)});
  for (const Figure& figure : study.figures) {
    EXPECT_FALSE(figure.series.empty()) << figure.file;
    if (figure.file != "ranges" && figure.file != "k") continue;
    for (const Series& series : figure.series) {
      double sum = 0;
      for (const double y : series.y) sum += y;
      EXPECT_NEAR(sum, 100, 1e-6) << figure.file << " " << series.name;
    }
  }
  EXPECT_EQ(test::error_of([] { study_of({}); }), "[study] expected moments, got none");
}

TEST(GroupStudy, finer_groups_are_better_on_rows_of_unlike_size) {
  const RandomStream random{.name = name_hash("groups")};
  const MatrixShape shape{64, 96};
  std::vector<float> x(static_cast<size_t>(shape.n_elems()));
  for (size_t i = 0; i < x.size(); ++i) {
    x[i] = random.normal(i) * std::exp(6 * random.normal(100000 + i / 96));
  }
  Quantizer q = linear_quantizer(Dtype::int8, granularity_from_name("tensor"));
  const double tensor = snr_of(q, shape, x);
  q.granularity = granularity_from_name("row");
  EXPECT_GT(snr_of(q, shape, x), tensor);
}

// A comparison has its draw beside it: of scales that round each element anew, of tensors, of
// samples.
TEST(GroupStudy, shows_what_another_scale_would_have_drawn) {
  const RandomStream random{.name = name_hash("draw")};
  const MatrixShape shape{48, 64};
  std::vector<float> x(static_cast<size_t>(shape.n_elems()));
  for (size_t i = 0; i < x.size(); ++i) x[i] = random.normal(i);
  for (const Dtype dtype : {Dtype::e4m3, Dtype::hif8, Dtype::int8}) {
    const Quantizer q = linear_quantizer(dtype, granularity_from_name("tensor"));
    const SnrAndDraw snr = snr_over_scales(q, shape, x);
    EXPECT_GT(snr.error, 0) << dtype_name(dtype);
    EXPECT_LT(snr.error, 1.2) << dtype_name(dtype);
    EXPECT_NEAR(snr.mean, snr_of(q, shape, x), 4) << dtype_name(dtype);
  }
}

// The same tensors under both: what is hard in a tensor is hard for both, and does not enter.
TEST(GroupStudy, pairs_tensors_so_that_a_small_difference_shows) {
  const std::vector<SnrAndDraw> tensors = {{0.1, 0.5}, {0.2, 0.5}, {0.3, 0.5}, {-0.02, 0.5}};
  const PairedSnr paired = paired_snr("a", "b", tensors);
  EXPECT_NEAR(paired.mean, 0.145, 1e-12);
  EXPECT_NEAR(paired.error,
              std::sqrt((0.045 * 0.045 + 0.055 * 0.055 + 0.155 * 0.155 + 0.165 * 0.165) / 3 / 4),
              1e-12);
  EXPECT_EQ(paired.n, 4);
  EXPECT_EQ(paired.n_larger, 3);
  const SnrByScale a = {31, 33, 35, 37}, b = {30, 32, 34, 36.4};
  const SnrAndDraw difference = difference_over_scales(a, b);
  EXPECT_NEAR(difference.mean, 0.9, 1e-12);
  EXPECT_NEAR(difference.error, 0.1, 1e-9);
  EXPECT_GT(over_scales(a).error, 1);
}

// A ratio of what is not finite, or of nothing, says nothing of formats.
TEST(TensorsStudy, names_the_tensors_that_it_leaves_out) {
  const std::map<std::string, std::vector<float>> tensors = {
      {"good", {1, 2}}, {"nan", {1, NAN}}, {"inf", {INFINITY, 1}}, {"zero", {0, 0}}};
  std::vector<TensorSource> sources;
  for (const auto& [name, values] : tensors)
    sources.push_back(
        span_source(tensor_decl(name, Dtype::f32, {2}), std::as_bytes(std::span(values))));
  const std::vector<int32_t> counts = {1, 2};
  sources.push_back(
      span_source(tensor_decl("counts", Dtype::i32, {2}), std::as_bytes(std::span(counts))));
  const test::ScratchFolder folder;
  write_atomically(posix_files(), folder / "w.safetensors",
                   [&](FileWriter& out) { write_safetensors(out, sources); });
  const Study study =
      study_tensors(SafetensorsReader::open(posix_files(), folder / "w.safetensors"));
  ASSERT_EQ(study.table.rows.size(), 1u);
  EXPECT_EQ(study.table.rows[0][0], "good");
  EXPECT_EQ(study.figures.at(0).x_names, std::vector<std::string>{"good"});
  EXPECT_THAT(study.left_out,
              testing::UnorderedElementsAre("nan: not finite", "inf: not finite",
                                            "zero: without a value but 0", "counts: of type I32"));
}

// What is exact in a format has no decibels; one value has no error of its mean.
TEST(StudyTables, have_no_number_where_there_is_none) {
  const std::vector<float> ones(64, 1);
  const std::vector<TensorSource> sources = {
      span_source(tensor_decl("ones", Dtype::f32, {64}), std::as_bytes(std::span(ones)))};
  const test::ScratchFolder folder;
  write_atomically(posix_files(), folder / "w.safetensors",
                   [&](FileWriter& out) { write_safetensors(out, sources); });
  const Study of_ones =
      study_tensors(SafetensorsReader::open(posix_files(), folder / "w.safetensors"));
  const auto at = [](const Sheet& sheet, const std::string& column) {
    return sheet.rows.at(0).at(
        static_cast<size_t>(std::ranges::find(sheet.columns, column) - sheet.columns.begin()));
  };
  EXPECT_EQ(at(of_ones.table, "e4m3 dB"), "-");
  EXPECT_EQ(at(of_ones.table, "e4m3 +-"), "-");
  EXPECT_THAT(at(of_ones.table, "best"), testing::HasSubstr("e4m3"));
  EXPECT_TRUE(std::isinf(of_ones.figures.at(0).series.at(0).y.at(0)));
  EXPECT_EQ(at(study_formats(1).table, "best_snr_error_db"), "-");
  EXPECT_EQ(at(study_of({states(64)}).table, "e4m3 +-"), "-");
  EXPECT_EQ(snr_db(4, 0), INFINITY);
  EXPECT_EQ(number_cell("{:.2f}", NAN), "-");
}

TEST(StudyTables, have_an_error_beside_each_mean) {
  StatesOfTensor other = states(1000);
  for (float& m : other.m) m *= 3;
  const Study of_states = study_of({states(1024), other}), of_formats = study_formats(256);
  EXPECT_GT(cell(of_states.table, "e4m3", "e4m3 +-"), 0);
  EXPECT_LT(cell(of_states.table, "e4m3", "e4m3 +-"), cell(of_states.table, "e4m3", "e4m3"));
  EXPECT_GT(cell(of_formats.table, "e4m3", "best_snr_error_db"), 0);
}

TEST(Sheets, have_a_column_for_each_series_over_all_of_x) {
  const Sheet sheet = sheet_of({.file = "f",
                                .title = "t",
                                .x_title = "x",
                                .series = {{"a", {0, 2}, {1, 2}}, {"b", {1, 2}, {5, 6}}}});
  EXPECT_EQ(sheet.columns, (std::vector<std::string>{"x", "a", "b"}));
  ASSERT_EQ(sheet.rows.size(), 3u);
  EXPECT_EQ(sheet.rows[0], (std::vector<std::string>{"0", "1", ""}));
  EXPECT_EQ(sheet.rows[2], (std::vector<std::string>{"2", "2", "6"}));
}

}  // namespace
}  // namespace octet::study_test
