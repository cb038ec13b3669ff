#include "cli/report_heat.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "cli/html_text.h"

namespace octet {
namespace {

constexpr double kHeatWidth = 560, kHeatLeft = 70, kHeatTop = 6, kRow = 16, kHeatBottom = 36;

double lost(const EdgeStatistics& edge) {
  return edge.zeros + edge.saturated;
}

bool is_worse(const EdgeStatistics& a, const EdgeStatistics& b) {
  const auto rank = [](const EdgeStatistics& e) {
    return std::pair(std::abs(e.rescale()), lost(e));
  };
  return rank(a) > rank(b);
}

// Every so manieth, the last always.
std::vector<int64_t> shown_steps(const std::set<int64_t>& steps) {
  const size_t every = (steps.size() + kMaxHeatSteps - 1) / kMaxHeatSteps;
  std::vector<int64_t> shown;
  size_t left = steps.size();
  for (const int64_t step : steps) {
    if (--left % every == 0) shown.push_back(step);
  }
  return shown;
}

// From the page's ground to full, over twelve powers of two; what is inside shows what it lost.
std::string cell_style(const EdgeStatistics& edge) {
  const int bits = std::abs(edge.rescale());
  if (bits > 0)
    return fmt::format("fill:#d03b2f;fill-opacity:{:.2f}", std::min(1.0, 0.3 + bits / 16.0));
  return fmt::format("fill:#2f6fd0;fill-opacity:{:.2f}", 0.08 + 0.5 * std::min(1.0, lost(edge)));
}

std::string cell_text(int layer, int64_t step, const EdgeStatistics& edge) {
  const std::string where = layer < 0 ? "outside the layers" : fmt::format("layer {}", layer);
  const int rescale = edge.rescale();
  const std::string help = rescale == 0 ? "inside its window" : fmt::format("wants 2^{}", rescale);
  return html_text(fmt::format("{}, step {}: {} ({}), {}, zeros {:.4f}, saturated {:.6f}", where,
                               step, edge.edge, dtype_name(edge.dtype), help, edge.zeros,
                               edge.saturated));
}

}  // namespace

std::string heat_map(const std::vector<EdgeSample>& samples) {
  std::map<int, std::map<int64_t, const EdgeStatistics*>> worst;  // by layer and step
  std::set<int64_t> steps;
  for (const EdgeSample& sample : samples) {
    steps.insert(sample.step);
    const EdgeStatistics*& edge = worst[sample.edge.tag.layer][sample.step];
    if (edge == nullptr || is_worse(sample.edge, *edge)) edge = &sample.edge;
  }
  if (steps.empty()) return "";
  const std::vector<int64_t> shown = shown_steps(steps);
  const double width = (kHeatWidth - kHeatLeft) / static_cast<double>(shown.size());
  const double height = kHeatTop + kRow * static_cast<double>(worst.size()) + kHeatBottom;
  std::string svg =
      fmt::format("<svg viewBox=\"0 0 {} {}\" class=\"heat\" role=\"img\">\n", kHeatWidth, height);
  double y = kHeatTop;
  for (const auto& [layer, row] : worst) {
    svg += fmt::format("<text x=\"{}\" y=\"{}\" text-anchor=\"end\">{}</text>\n", kHeatLeft - 6,
                       y + 12, layer < 0 ? "outside" : fmt::format("layer {}", layer));
    for (size_t i = 0; i < shown.size(); ++i) {
      const auto edge = row.find(shown[i]);
      if (edge == row.end()) continue;
      svg += fmt::format(
          "<rect x=\"{:.2f}\" y=\"{}\" width=\"{:.2f}\" height=\"{}\" "
          "style=\"{}\"><title>{}</title></rect>\n",
          kHeatLeft + width * static_cast<double>(i), y, width * 0.96, kRow - 1,
          cell_style(*edge->second), cell_text(layer, shown[i], *edge->second));
    }
    y += kRow;
  }
  svg += fmt::format("<text x=\"{}\" y=\"{}\">step {}</text>\n", kHeatLeft, y + 16, shown.front());
  svg += fmt::format("<text x=\"{}\" y=\"{}\" text-anchor=\"end\">{}</text>\n</svg>\n", kHeatWidth,
                     y + 16, shown.back());
  return svg;
}

}  // namespace octet
