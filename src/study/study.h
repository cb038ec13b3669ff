// Findings of a study: numbers for spreadsheets, and figures to be drawn.
#pragma once

#include <fmt/format.h>

#include <string>
#include <vector>

namespace octet {

struct Series {
  std::string name;
  std::vector<double> x = {}, y = {};
};

enum class FigureScale : uint8_t { linear, logarithmic };  // of y

struct Figure {
  std::string file;  // without its ending
  std::string title;
  std::string x_title = {}, y_title = {};  // with the units
  FigureScale scale = FigureScale::linear;
  bool has_dots = false;
  bool from_zero = false;
  std::vector<std::string> x_names = {};  // where x counts them: 0, 1, ...
  std::vector<Series> series = {};
};

struct Sheet {
  std::string file;
  std::vector<std::string> columns = {};
  std::vector<std::vector<std::string>> rows = {};
};

struct Study {
  std::string title;
  Sheet table;  // what is printed, too
  std::vector<Sheet> sheets = {};
  std::vector<Figure> figures = {};
  std::vector<std::string> left_out = {};  // "NAME: why", of what has no row
};

// 10 log10(signal / noise). Infinite without noise, NaN without either.
double snr_db(double signal, double noise);

// A number as a table has it, and "-" where there is none: what is exact has no decibels, and one
// value no standard error.
std::string number_cell(fmt::format_string<double> format, double value);

// Each series as a column, over x.
Sheet sheet_of(const Figure& figure);

}  // namespace octet
