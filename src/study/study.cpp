#include "study/study.h"

#include <cmath>
#include <map>
#include <optional>

namespace octet {

double snr_db(double signal, double noise) {
  return 10 * std::log10(signal / noise);
}

std::string number_cell(fmt::format_string<double> format, double value) {
  if (!std::isfinite(value)) return "-";
  return fmt::vformat(fmt::string_view(format), fmt::make_format_args(value));
}

Sheet sheet_of(const Figure& figure) {
  Sheet sheet{.file = figure.file, .columns = {figure.x_title}};
  std::map<double, std::vector<std::optional<double>>> by_x;
  for (size_t i = 0; i < figure.series.size(); ++i) {
    const Series& series = figure.series[i];
    sheet.columns.push_back(series.name);
    for (size_t k = 0; k < series.x.size(); ++k) {
      auto& row = by_x[series.x[k]];
      row.resize(figure.series.size());
      row[i] = series.y[k];
    }
  }
  for (const auto& [x, values] : by_x) {
    const auto at = static_cast<size_t>(x);
    std::vector<std::string> row = {figure.x_names.empty() ? fmt::format("{:.9g}", x)
                                                           : figure.x_names.at(at)};
    for (const auto& value : values) row.push_back(value ? number_cell("{:.9g}", *value) : "");
    sheet.rows.push_back(std::move(row));
  }
  return sheet;
}

}  // namespace octet
